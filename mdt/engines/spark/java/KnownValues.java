// Where the values of another side of a join are put, once they are known, for a test of rows.
package mdt.spark;

interface KnownValues {
    /** Takes values, null among them or not; before it does, and where they are too many, every row passes the test. */
    void know(Object[] values);
}
