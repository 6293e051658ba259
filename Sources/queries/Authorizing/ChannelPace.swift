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
    /// Treatment of a question by what similar questions took.
    enum Standing {
        case plain
        /// Several similar questions have taken too long recently.
        case suspect
        case slow
    }

    private enum Subject: Hashable {
        case topic(role: String, [UInt8])
        /// Topics that are equal apart from parts with digits.
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

    func standing(_ question: ChannelQuestion, at now: UInt64) -> Standing {
        state.withLock { state in
            guard state.penalties.isActive(at: now) else { return .plain }
            let (topic, others) = (Self.subjects(question)[0], Self.subjects(question).dropFirst())
            if state.penalties.contains(topic, at: now) { return .slow }
            let isSuspect = others.contains { state.penalties.count($0, at: now) >= Limits.channelSuspicion }
            return isSuspect ? .suspect : .plain
        }
    }

    /// Returns the subjects to which a slow question's penalty applies. The first is its topic.
    private static func subjects(_ question: ChannelQuestion) -> [Subject] {
        var subjects = [Subject.topic(role: question.role, question.topic)]
        subjects.append(.kind(role: question.role, kind(question.topic)))
        if !question.subject.isEmpty { subjects.append(.person(role: question.role, question.subject)) }
        return subjects
    }

    /// Returns the topic without the parts that contain digits, so that similar topics become equal.
    private static func kind(_ topic: [UInt8]) -> [UInt8] {
        var kind: [UInt8] = []
        for part in topic.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false) {
            let isNumber = part.contains { (48...57).contains($0) }
            kind += isNumber ? [0] : part + [UInt8(ascii: ":")]
        }
        return kind
    }
}
