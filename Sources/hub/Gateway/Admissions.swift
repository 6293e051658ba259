import Diagnostics
import Synchronization

/// Which of the database's messages were let in under the project's rate: found out by the loop that comes to one first,
/// and the same for all.
final class Admissions: Sendable {
    private typealias Answer = (offset: UInt64, isAdmitted: Bool)

    /// Each at its offset's place, until another needs that: loops that are further apart decide by themselves.
    private let answers = Mutex([Answer]())

    /// `decide` is called once for an offset, and must not wait for anything.
    func isAdmitted(_ offset: UInt64, decide: () -> Bool) -> Bool {
        answers.withLock { answers in
            if answers.isEmpty { answers = Array(repeating: (.max, false), count: Limits.rememberedAdmissions) }
            let place = Int(offset % UInt64(Limits.rememberedAdmissions))
            if answers[place].offset != offset { answers[place] = (offset, decide()) }
            return answers[place].isAdmitted
        }
    }
}
