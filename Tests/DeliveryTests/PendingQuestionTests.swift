import TestSupport
import Testing

@testable import Delivery

@Suite(.within(minutes: 5)) struct PendingQuestionTests {
    private func outcome(_ parts: [Bool?]) -> (Bool?, isAnswered: Bool) {
        let question = PendingQuestion(parts: 2)
        for part in parts { question.take(part) }
        switch question.answer {
        case .none: return (nil, false)
        case .given(let answer): return (answer, true)
        case .failed: return (nil, true)
        }
    }

    /// Checks a row on which the filter fails and which the policy hides. A notice about the failure would reveal the
    /// row.
    @Test func `a policy's no outweighs a filter's failure, whichever comes first`() {
        #expect(outcome([nil, false]) == (false, true))
        #expect(outcome([false, nil]) == (false, true))
        #expect(outcome([true, false]) == (false, true))
    }

    @Test func `a failure counts once nothing is missing`() {
        #expect(outcome([nil]) == (nil, false))
        #expect(outcome([nil, true]) == (nil, true))
        #expect(outcome([true, nil]) == (nil, true))
        #expect(outcome([true, true]) == (true, true))
    }
}
