import Diagnostics
import Synchronization

/// Decisions about which database messages are admitted under the project's rate. The loop that reads a message first
/// decides, for all loops.
final class Admissions: Sendable {
    private typealias Answer = (offset: UInt64, isAdmitted: Bool)

    /// Decisions, each in the slot of its offset until another offset needs that slot. Loops that read too far apart
    /// decide independently.
    private let answers = Mutex([Answer]())

    /// Returns the decision for an offset. `decide` is called once for an offset, and must not wait for anything.
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
