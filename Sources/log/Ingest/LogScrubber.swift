import Diagnostics
import EventLog
import Glibc
import System

/// Scrubber that slowly and repeatedly checks the sealed segments. It finds damage on the disk before the data are
/// needed, while a good copy may still exist. It reports damage in the hub's log and metrics, and changes nothing.
///
/// A separate thread with low priority runs the scrubber.
final class LogScrubber: Sendable {
    /// Returns the directory of the log; nil until the log has been opened.
    private let directory: @Sendable () -> (any StorageDirectory)?
    private let bytesPerSecond: Int
    private let metrics: ProjectMetrics
    private let end: @Sendable () -> EventLogEnd?
    private let stopping = Pulse()

    /// Number of bytes that are checked in one step.
    private static let stepBytes: UInt64 = 256 << 10
    /// Pause while no segment is due.
    private static let idleNanoseconds: UInt64 = 60_000_000_000

    init(
        _ directory: @escaping @Sendable () -> (any StorageDirectory)?, bytesPerSecond: Int, metrics: ProjectMetrics,
        end: @escaping @Sendable () -> EventLogEnd?
    ) {
        self.directory = directory
        self.bytesPerSecond = bytesPerSecond
        self.metrics = metrics
        self.end = end
    }

    func run() {
        BackgroundThread.letOthersFirst()
        var schedule = ScrubSchedule()
        while !isStopping {
            guard let segment = next(&schedule) else {
                rest(Self.idleNanoseconds)
                continue
            }
            check(segment, &schedule)
        }
    }

    func stop() { stopping.beat() }

    private var isStopping: Bool { stopping.value > 0 }

    private func rest(_ nanoseconds: UInt64) {
        _ = stopping.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + nanoseconds)
    }

    private func next(_ schedule: inout ScrubSchedule) -> UInt64? {
        guard let active = end()?.state.segment, let directory = directory(),
            let sealed = try? SegmentCheck.sealed(in: directory, before: active)
        else { return nil }
        let next = schedule.next(sealed, now: Clock.monotonicNanoseconds())
        assert(next.map { $0 < active } ?? true, "the active segment is not checked")
        publish(schedule)
        return next
    }

    private func publish(_ schedule: ScrubSchedule) {
        metrics.scrubDueSegments.set(Int64(schedule.dueCount))
        metrics.damagedSegments.set(Int64(schedule.damaged.count))
    }

    private func check(_ segment: UInt64, _ schedule: inout ScrubSchedule) {
        var finding: String?
        do throws(EventLogError) {
            guard try readWhole(segment) else { return }
        } catch {
            // The kernel refused a read, which proves nothing about the segment. The check is repeated later.
            if error.trouble == .transient { return rest(Self.idleNanoseconds) }
            finding = "\(error)"
        }
        schedule.note(segment, isDamaged: finding != nil, now: Clock.monotonicNanoseconds())
        publish(schedule)
        guard let finding else { return }
        Log.shared.error(
            "cannot read a sealed segment of the event log: it is damaged",
            [
                .path(directory()?.path ?? ""), .segment(segment), .reason(finding),
                .hint("restore it from a backup; 'tidewire help log accept-loss' explains how to continue without it"),
            ])
    }

    /// Checks a segment to its end. Returns false if the scrubber was stopped before that.
    private func readWhole(_ segment: UInt64) throws(EventLogError) -> Bool {
        guard let directory = directory(), var check = try SegmentCheck(directory, segment: segment) else {
            return true
        }
        var isMore = true
        while isMore {
            let before = check.bytesRead
            isMore = try check.step(over: Self.stepBytes)
            let bytes = check.bytesRead - before
            assert(!isMore || bytes >= Self.stepBytes, "only the last step reads less than its share")
            metrics.scrubbedBytes.add(bytes)
            if isStopping { return false }
            rest(bytes * 1_000_000_000 / UInt64(bytesPerSecond))
        }
        return true
    }
}

/// Schedule that selects the segment to check next.
struct ScrubSchedule {
    /// Monotonic time in nanoseconds of the last check of each segment.
    private var checked: [UInt64: UInt64] = [:]
    private(set) var damaged: Set<UInt64> = []
    /// Number of segments that were due at the last call of `next`.
    private(set) var dueCount = 0

    /// Interval in nanoseconds after which a segment is checked again. A new segment is due immediately.
    static let interval: UInt64 = 24 * 3_600_000_000_000

    /// Returns the due segment whose last check is the longest ago; nil if none is due. Forgets segments that are not
    /// in `sealed` any more.
    mutating func next(_ sealed: [UInt64], now: UInt64) -> UInt64? {
        let present = Set(sealed)
        checked = checked.filter { present.contains($0.key) }
        damaged.formIntersection(present)
        let due = sealed.filter { segment in checked[segment].map { now - min($0, now) >= Self.interval } ?? true }
        dueCount = due.count
        assert(damaged.count <= checked.count, "only a segment that was checked counts as damaged")
        return due.min { (checked[$0] ?? 0, $0) < (checked[$1] ?? 0, $1) }
    }

    mutating func note(_ segment: UInt64, isDamaged: Bool, now: UInt64) {
        checked[segment] = max(now, 1)
        if isDamaged { damaged.insert(segment) } else { damaged.remove(segment) }
        dueCount = max(0, dueCount - 1)
    }
}
