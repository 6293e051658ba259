import Diagnostics
import Synchronization

/// Decisions whether the project's rate limit admits a database message. The loop that reads a message first decides,
/// and the other loops use its decision.
final class Admissions: Sendable {
    private typealias Answer = (offset: UInt64, isAdmitted: Bool)

    /// Recent decisions, each at an index computed from its message's offset, until a newer decision replaces it. If
    /// loops read very far apart, each decides by itself.
    private let answers = Mutex([Answer]())

    /// Returns the decision for the message at an offset. Calls `decide` if there is none yet; `decide` must not block.
    func isAdmitted(_ offset: UInt64, decide: () -> Bool) -> Bool {
        assert(offset != .max, "a message does not have the offset of an empty slot")
        return answers.withLock { answers in
            if answers.isEmpty { answers = Array(repeating: (.max, false), count: Limits.rememberedAdmissions) }
            let place = Int(offset % UInt64(Limits.rememberedAdmissions))
            if answers[place].offset != offset { answers[place] = (offset, decide()) }
            return answers[place].isAdmitted
        }
    }
}
