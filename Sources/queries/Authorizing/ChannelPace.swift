import Asking
import Diagnostics
import Synchronization
import System

/// Time limits of transactions with many questions, and a memory of slow questions.
///
/// A policy that hangs for some clients delays all questions of its transaction until PostgreSQL stops it. So questions
/// about the same topic are asked alone for a while. After the second slow question, all transactions get less time.
/// After several slow questions of one kind (similar topics, or one user), all questions of that kind are asked
/// separately from others.
final class ChannelPace: Sendable {
    /// Way in which a question is asked, depending on how long similar questions took recently.
    enum Standing {
        case plain
        /// Several similar questions have taken too long recently.
        case suspect
        case slow
    }

    private enum Subject: Hashable {
        case topic(role: String, [UInt8])
        /// Role, and all topics that become equal when parts with digits are replaced by a placeholder.
        case kind(role: String, [UInt8])
        case person(role: String, String)
    }

    private struct State {
        var hurriesUntil: UInt64 = 0
        var penalties = Penalties<Subject>(limit: Limits.maximumChannelPenalties, each: Limits.channelPenalty)
    }

    private let state = Mutex(State())

    /// Returns the timeout of one statement, and the duration after which the statement begins no further question.
    func limits(at now: UInt64) -> (timeout: Duration, budget: Duration) {
        if state.withLock({ now < $0.hurriesUntil }) {
            return (Limits.channelHurriedBudget + Limits.channelHurriedTimeout, Limits.channelHurriedBudget)
        }
        return (Limits.channelBatchBudget + Limits.channelQuickTimeout, Limits.channelBatchBudget)
    }

    /// Records that the question took too long.
    func tookTooLong(_ question: ChannelQuestion, at now: UInt64) {
        state.withLock { state in
            if state.penalties.isActive(at: now) {
                state.hurriesUntil = now + Limits.channelPenalty.wholeNanoseconds
            }
            for subject in Self.subjects(question) { state.penalties.add(subject, at: now) }
        }
    }

    /// Returns the way in which the question is asked now.
    func standing(_ question: ChannelQuestion, at now: UInt64) -> Standing {
        state.withLock { state in
            guard state.penalties.isActive(at: now) else { return .plain }
            let (topic, others) = (Self.subjects(question)[0], Self.subjects(question).dropFirst())
            if state.penalties.contains(topic, at: now) { return .slow }
            let isSuspect = others.contains { state.penalties.count($0, at: now) >= Limits.channelSuspicion }
            return isSuspect ? .suspect : .plain
        }
    }

    /// Returns the keys under which a slow question gets penalties. The first is its topic, then similar topics and the
    /// user.
    private static func subjects(_ question: ChannelQuestion) -> [Subject] {
        var subjects = [Subject.topic(role: question.role, question.topic)]
        subjects.append(.kind(role: question.role, kind(question.topic)))
        if !question.subject.isEmpty { subjects.append(.person(role: question.role, question.subject)) }
        return subjects
    }

    /// Returns the topic with each colon-separated part that contains a digit replaced by a placeholder, so that
    /// similar topics become equal.
    private static func kind(_ topic: [UInt8]) -> [UInt8] {
        var kind: [UInt8] = []
        for part in topic.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false) {
            let isNumber = part.contains { (48...57).contains($0) }
            kind += isNumber ? [0] : part + [UInt8(ascii: ":")]
        }
        return kind
    }
}
