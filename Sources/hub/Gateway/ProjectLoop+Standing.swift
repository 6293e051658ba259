import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Synchronization
import System

/// Where channels stand in the log, looked at now and then: who asked for its position and hears nothing for long is told
/// it, so that it can come back to one that the log still has; and who is furthest behind is measured against retention. Who is
/// in the part of the ledger that the log is about to let go of is noted there anew.
extension ProjectLoop {
    /// From the first channel on that either is about.
    func watchStandings() {
        guard standingSweep == nil else { return }
        standingSweep = StandingSweep()
        lookAtStandings(after: project.settings.positionInterval)
    }

    private func lookAtStandings(after time: Duration) {
        loop.after(nanoseconds: time.wholeNanoseconds, token: TimerToken.standings(place).rawValue)
    }

    /// A step of a sweep: all channels at once would hold up what they hear.
    func standingsAreDue() {
        guard var sweep = standingSweep else { return }
        if sweep.next == 0 { sweep.began = loop.time.unixMicroseconds() }
        let all = channels.indices
        let last = min(all.upperBound, sweep.next + Limits.standingsPerStep)
        let restatedBefore = restatedBefore ?? 0
        for place in sweep.next..<max(last, sweep.next) {
            guard let channel = channels[place], channel.isOpen else { continue }
            sweep.found(offsetNeeded(by: channel))
            sayWhereQuietChannelStands(channel)
            guard channel.isInLedger else { continue }
            sweep.sent(sentForLedger(channel) ?? 0)
            // Some at a time: a hundred thousand at once would be more than the log takes.
            guard mustBeRestated(channel, before: restatedBefore), sweep.mayRestate() else { continue }
            restate(channel)
        }
        sweep.next = last
        guard last >= all.upperBound else {
            standingSweep = sweep
            return lookAtStandings(after: Limits.standingStepInterval)
        }
        ended(sweep)
        standingSweep = StandingSweep()
        lookAtStandings(after: project.settings.positionInterval)
    }

    // MARK: Quiet channels

    private func sayWhereQuietChannelStands(_ channel: Channel) {
        // Feeds say it themselves.
        guard channel.session.feed == nil, channel.conversation.options.contains(.hearsPosition),
            channel.follower === live,
            channel.listener.map({ !live.pipeline.isHeld($0) }) ?? true, let position = position(of: channel)
        else { return }
        let details = channel.conversation.detailed()
        // What it was told by changes stands for a marker.
        let heard = channel.listener.flatMap { live.pipeline.toldAt($0) } ?? 0
        guard heard <= details.markedAt else {
            details.markedAt = heard
            return
        }
        if position.offset > details.markedAt { sayCaughtUp(channel) }
    }

    // MARK: Who is behind

    /// What the log must not let go of before the channel has come there; nil for who is at the log's end.
    private func offsetNeeded(by channel: Channel) -> UInt64? {
        if case .from(let position) = channel.recovery, channel.follower == nil { return position.offset }
        guard let follower = channel.follower, follower !== live, follower.pipeline.isOpen else { return nil }
        return max(follower.pipeline.frontier, channel.since ?? 0)
    }

    private func ended(_ sweep: StandingSweep) {
        if let ledger = project.ledger { _ = saysWhatIsMissing(ledger) }
        if let sent = sweep.sent { noteReach(sent, from: sweep.began) }
        project.slowest.set(sweep.needed, of: clients.number)
        guard let end = project.delivery.log.end()?.state.position.offset else { return }
        metrics.slowestReaderOffset.set(min(project.slowest.offset ?? end, end))
        guard let needed = sweep.needed, let oldest = oldestOffset(),
            Retention.isNear(needed, oldest: oldest, end: end)
        else { return }
        warnSometimes(
            """
            a channel that catches up is about to be overtaken by the event log's retention: raise retention_size or \
            retention_age, or it will have to fetch again
            """)
    }
}

/// A look at all channels of a loop, under way.
struct StandingSweep {
    /// When the first channel was looked at.
    var began: Int64 = 0
    var next: UInt32 = 0
    /// All were sent what lies before there.
    private(set) var sent: UInt64?
    /// The least that anybody needs.
    private(set) var needed: UInt64?

    /// So many are noted again until then.
    private var restated = 0

    mutating func mayRestate() -> Bool {
        restated += 1
        return restated <= Limits.restatedPerSweep
    }

    mutating func sent(_ offset: UInt64) { sent = min(sent ?? offset, offset) }

    mutating func found(_ offset: UInt64?) {
        guard let offset else { return }
        needed = min(needed ?? offset, offset)
    }
}

enum Retention {
    /// In the oldest tenth of what the log has: whole segments go at once.
    static func isNear(_ offset: UInt64, oldest: UInt64, end: UInt64) -> Bool {
        guard end > oldest, offset < end else { return false }
        return offset < oldest + (end - oldest) / 10
    }
}

/// The offset that the channel needs which is furthest behind, of all loops.
final class SlowestReader: Sendable {
    private let offsets: Mutex<[UInt64?]>

    init(loops: Int) { offsets = Mutex(Array(repeating: nil, count: loops)) }

    func set(_ offset: UInt64?, of loop: Int) { offsets.withLock { $0[loop] = offset } }
    var offset: UInt64? { offsets.withLock { $0.compactMap(\.self).min() } }
}
