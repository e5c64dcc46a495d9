// Takes statements on tables of ours that Spark would refuse, at the end of their analysis: names are resolved, and the planner,
// which refuses, has not been asked yet.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;

public class SqlRule extends Rule {
    private final SparkSession session;

    SqlRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        if (!((LogicalPlan) plan).resolved()) {
            return plan; // Spark says what it does not know
        }
        if (plan instanceof DeleteFromTable) {
            Target target = Target.of(((DeleteFromTable) plan).table());
            return target == null ? plan : new SqlCommand(new RowStatement(target, (DeleteFromTable) plan));
        }
        if (plan instanceof UpdateTable) {
            Target target = Target.of(((UpdateTable) plan).table());
            return target == null ? plan : new SqlCommand(new RowStatement(target, (UpdateTable) plan));
        }
        if (plan instanceof MergeIntoTable) {
            Target target = Target.of(((MergeIntoTable) plan).targetTable());
            return target == null ? plan : new SqlCommand(new MergeStatement(target, (MergeIntoTable) plan));
        }
        if (plan instanceof InsertIntoDataSourceCommand) {
            InsertRows insert = InsertRows.of((InsertIntoDataSourceCommand) plan);
            return insert == null ? plan : new SqlCommand(insert);
        }
        return plan;
    }
}
