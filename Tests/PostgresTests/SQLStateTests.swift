import Postgres
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct SQLStateTests {
    @Test(arguments: [
        ("53100", true), ("53300", true), ("57P01", true), ("57014", true), ("40P01", true), ("55P03", true),
        ("08006", true), ("58030", true), ("53400", false), ("58P01", false), ("42501", false), ("22012", false),
        ("XX000", false), ("", false),
    ])
    func `what passes is told from what stays`(state: String, passes: Bool) {
        #expect(SQLState.isPassing(state) == passes)
    }
}
