// Gives each new session its SqlRule.
package mdt.spark;

import scala.runtime.AbstractFunction1;

final class SqlRules extends AbstractFunction1 {
    public Object apply(Object session) {
        return new SqlRule();
    }
}
