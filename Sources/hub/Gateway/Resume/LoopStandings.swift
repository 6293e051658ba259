import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Synchronization
import System

/// Regular sweep over the channels' positions in the log, with three purposes. A quiet client that asked for positions
/// is told its current one, so that it resumes from a position that the log still has. The channel furthest behind is
/// compared with retention. Ledger notes that retention is about to remove are repeated.
final class LoopStandings: LoopPart {
    unowned let home: ProjectLoop
    /// Progress of the sweep; nil until the first channel needs one.
    private var sweep: StandingSweep?

    init(of home: ProjectLoop) { self.home = home }

    /// Starts the sweep with the first channel that needs it.
    func watch() {
        guard sweep == nil else { return }
        sweep = StandingSweep()
        lookAtStandings(after: project.settings.positionInterval)
    }

    private func lookAtStandings(after time: Duration) {
        loop.after(nanoseconds: time.wholeNanoseconds, token: TimerToken.standings(home.place).rawValue)
    }

    /// Runs one step of a sweep. All channels in one step would delay their events.
    func areDue() {
        guard var sweep else { return }
        if sweep.next == 0 { sweep.began = loop.time.unixMicroseconds() }
        let all = home.channels.indices
        let last = min(all.upperBound, sweep.next + Limits.standingsPerStep)
        let restatedBefore = home.ledger.restatedBefore ?? 0
        for place in sweep.next..<max(last, sweep.next) {
            guard let channel = home.channels[place], channel.isOpen else { continue }
            sweep.found(channel.position.needed(home.view(of: channel)))
            sayWhereQuietChannelStands(channel)
            guard channel.ledger.isListed else { continue }
            sweep.sent(home.ledger.sentForLedger(channel) ?? 0)
            // Only some are noted in each sweep: a hundred thousand notes at once would be more than the log takes.
            guard home.ledger.mustBeRestated(channel, before: restatedBefore), sweep.mayRestate() else { continue }
            home.ledger.restate(channel)
        }
        sweep.next = last
        guard last >= all.upperBound else {
            self.sweep = sweep
            return lookAtStandings(after: Limits.standingStepInterval)
        }
        ended(sweep)
        self.sweep = StandingSweep()
        lookAtStandings(after: project.settings.positionInterval)
    }

    // MARK: Quiet channels

    private func sayWhereQuietChannelStands(_ channel: Channel) {
        // Feeds send their positions themselves.
        guard channel.feed == nil, channel.conversation.options.contains(.hearsPosition),
            channel.delivery.follower === home.live, !home.live.holds(channel),
            let position = home.catchUps.position(of: channel)
        else { return }
        // A position that came with a change counts as a marker.
        let heard = channel.delivery.listener.flatMap { home.live.pipeline.toldAt($0) } ?? 0
        guard heard <= channel.position.markedAt else { return home.take(.marked(heard), channel) }
        if position.offset > channel.position.markedAt { home.catchUps.sayCaughtUp(channel) }
    }

    // MARK: Channels that are behind

    private func ended(_ sweep: StandingSweep) {
        home.ledger.sayWhatIsMissing()
        if let sent = sweep.sent { home.ledger.noteReach(sent, from: sweep.began) }
        project.slowest.set(sweep.needed, of: clients.number)
        guard let end = project.delivery.log.end()?.state.position.offset else { return }
        metrics.slowestReaderOffset.set(min(project.slowest.offset ?? end, end))
        guard let needed = sweep.needed, let oldest = home.catchUps.oldestOffset(),
            Retention.isNear(needed, oldest: oldest, end: end)
        else { return }
        home.warnSometimes(
            """
            a channel that catches up is about to be overtaken by the event log's retention: raise retention_size or \
            retention_age, or it will have to fetch again
            """)
    }
}

/// State of a sweep over all channels of a loop.
struct StandingSweep {
    /// Time at which the first channel was checked, in Unix microseconds.
    var began: Int64 = 0
    var next: UInt32 = 0
    /// Offset before which all checked channels were sent everything.
    private(set) var sent: UInt64?
    /// Lowest offset that a channel still needs.
    private(set) var needed: UInt64?

    /// Number of channels noted again in this sweep.
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
    /// True if the offset is in the oldest tenth of the log. Retention removes whole segments, so the offset is about
    /// to be lost.
    static func isNear(_ offset: UInt64, oldest: UInt64, end: UInt64) -> Bool {
        guard end > oldest, offset < end else { return false }
        return offset < oldest + (end - oldest) / 10
    }
}

/// Lowest offset that a channel still needs, over all loops.
final class SlowestReader: Sendable {
    private let offsets: Mutex<[UInt64?]>

    init(loops: Int) { offsets = Mutex(Array(repeating: nil, count: loops)) }

    func set(_ offset: UInt64?, of loop: Int) { offsets.withLock { $0[loop] = offset } }
    var offset: UInt64? { offsets.withLock { $0.compactMap(\.self).min() } }
}
