import Diagnostics
import Synchronization
import System

/// How long questions may take that are asked together, and which are not asked together for a while.
///
/// A policy that hangs for some holds up all that are asked with them, each time until the server stops it. So what is
/// asked about such a topic is asked by itself from there on, and after the second everybody hurries.
final class ChannelPace: Sendable {
    private struct Subject: Hashable {
        var role: String
        var topic: [UInt8]
    }

    private struct State {
        var lastUntil: UInt64 = 0
        var hurriesUntil: UInt64 = 0
        var penalties: [Subject: UInt64] = [:]
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
        let until = now + Limits.channelPenalty.wholeNanoseconds
        let subject = Subject(role: question.role, topic: question.topic)
        state.withLock { state in
            if now < state.lastUntil { state.hurriesUntil = until }
            state.lastUntil = until
            if state.penalties.count >= Limits.maximumChannelPenalties {
                state.penalties = state.penalties.filter { $0.value > now }
            }
            if state.penalties.count < Limits.maximumChannelPenalties { state.penalties[subject] = until }
        }
    }

    func isSlow(_ question: ChannelQuestion, at now: UInt64) -> Bool {
        state.withLock { state in
            if state.penalties.isEmpty { return false }
            let subject = Subject(role: question.role, topic: question.topic)
            guard let until = state.penalties[subject] else { return false }
            if now < until { return true }
            state.penalties[subject] = nil
            return false
        }
    }
}
