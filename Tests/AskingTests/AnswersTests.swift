import TestSupport
import Testing

@testable import Asking

@Suite(.within(minutes: 2)) struct AnswersTests {
    @Test func `only PostgreSQL's yes is one`() {
        let row = ["t", "f", nil, "true", ""]
        #expect(row.indices.map { row.flag($0) } == [true, false, false, false, false])
        #expect(!row.flag(5) && !row.flag(-1))
    }

    @Test func `so many are sent together as fit, and always one`() {
        let sizes = [3, 4, 5, 1][...]
        #expect(sizes.fitting(within: 7) { $0 } == [3, 4])
        #expect(sizes.fitting(1, within: 7) { $0 } == [3])
        #expect(sizes.fitting(within: 2) { $0 } == [3])
        #expect(sizes[4...].fitting(within: 2) { $0 } == [])
    }
}
