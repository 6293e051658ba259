import Asking
import Diagnostics
import Synchronization
import System

/// How long questions may take that are asked together, and which are not asked together for a while.
///
/// A policy that hangs for some holds up all that are asked with them, each time until the server stops it. So what is
/// asked about such a topic is asked by itself from there on, and after the second everybody hurries. After some of one
/// kind (topics that are alike, or one person's), whatever else is of that kind is asked together, but with nobody else.
final class ChannelPace: Sendable {
    enum Standing {
        case plain
        /// Others like it took too long.
        case suspect
        case slow
    }

    private enum Subject: Hashable {
        case topic(role: String, [UInt8])
        /// With its digits taken for one another.
        case kind(role: String, [UInt8])
        case person(role: String, String)
    }

    private struct State {
        var hurriesUntil: UInt64 = 0
        var penalties = Penalties<Subject>(limit: Limits.maximumChannelPenalties, each: Limits.channelPenalty)
    }

    private let state = Mutex(State())

    /// What one statement may take, and after what it begins no other question.
    func limits(at now: UInt64) -> (timeout: Duration, budget: Duration) {
        if state.withLock({ now < $0.hurriesUntil }) {
            return (Limits.channelHurriedBudget + Limits.channelHurriedTimeout, Limits.channelHurriedBudget)
        }
        return (Limits.channelBatchBudget + Limits.channelQuickTimeout, Limits.channelBatchBudget)
    }

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

    /// The topic first.
    private static func subjects(_ question: ChannelQuestion) -> [Subject] {
        var subjects = [Subject.topic(role: question.role, question.topic)]
        subjects.append(.kind(role: question.role, kind(question.topic)))
        if !question.subject.isEmpty { subjects.append(.person(role: question.role, question.subject)) }
        return subjects
    }

    /// Numbers and identifiers are not what topics of one kind have in common.
    private static func kind(_ topic: [UInt8]) -> [UInt8] {
        var kind: [UInt8] = []
        for part in topic.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false) {
            let isNumber = part.contains { (48...57).contains($0) }
            kind += isNumber ? [0] : part + [UInt8(ascii: ":")]
        }
        return kind
    }
}
