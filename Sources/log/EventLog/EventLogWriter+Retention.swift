import Glibc
import System

/// Clock that takes the wall clock's time when the log is opened, and then counts monotonic time. Setting the wall
/// clock does not change it.
struct SteadyClock: Sendable {
    private let wall: Int64
    private let began: UInt64
    private let monotonic: @Sendable () -> UInt64

    /// Creates the clock.
    ///
    /// - Parameter wall: the time that the wall clock shows now, in microseconds since 1970.
    init(wall: Int64, _ monotonic: @escaping @Sendable () -> UInt64) {
        self.wall = wall
        self.monotonic = monotonic
        began = monotonic()
    }

    /// Current time of this clock, in microseconds since 1970.
    var now: Int64 { wall + Int64(clamping: (monotonic() - began) / 1000) }
}

extension EventLogWriter {
    /// Deletes the oldest sealed segments that are too old or that make the log too large. Returns their summaries.
    ///
    /// Only whole segments are deleted, never the active one. A reader in a deleted segment gets `outsideRetention`
    /// when it continues. `now` is in microseconds since 1970.
    @discardableResult
    public func enforceRetention(now: Int64) throws(EventLogFailure) -> [SegmentSummary] {
        var deleted: [SegmentSummary] = []
        guard let first = sealed.first, isExpired(first, now) else { return deleted }
        // While an erasure is running, no segment is deleted. The caller tries again soon.
        guard let alone = try? EventLogErasure.lock(directory) else { return deleted }
        defer { withExtendedLifetime(alone) {} }
        while let oldest = sealed.first, isExpired(oldest, now) {
            try delete(oldest)
            sealed.removeFirst()
            sealedAt[oldest.sequence] = nil
            deleted.append(oldest)
        }
        // If this sync fails, a power failure may restore deleted files, beginning with the oldest. The next call
        // deletes them again.
        if !deleted.isEmpty { try storage { () throws(SystemError) in try directory.sync() } }
        return deleted
    }

    private func isExpired(_ segment: SegmentSummary, _ now: Int64) -> Bool {
        if let largest = options.retentionBytes, segments.reduce(0, { $0 + $1.bytes }) > largest { return true }
        guard let age = options.retentionAge else { return false }
        let microseconds = age.components.seconds * 1_000_000
        guard latestTime(segment, now) < now - microseconds else { return false }
        guard let steady = steadyClock?.now else { return true }
        return sealedAt[segment.sequence] ?? latestTime(segment, steady) < steady - microseconds
    }

    /// Returns the latest commit time in a segment. Commit times are those of the database's clock. If the time lies in
    /// the future, the creation time of the next segment replaces it, so that the segment is not kept too long.
    private func latestTime(_ segment: SegmentSummary, _ now: Int64) -> Int64 {
        let latest = segment.isEmpty ? segment.header.created : segment.maximumTime
        guard latest > now, let next = segments.first(where: { $0.sequence == segment.sequence + 1 }) else {
            return latest
        }
        return next.header.created
    }

    private func delete(_ segment: SegmentSummary) throws(EventLogFailure) {
        assert(segment.isSealed && segment.sequence < segmentSequence, "the active segment is never deleted")
        for name in LogFile.all(of: segment.sequence) {
            do throws(SystemError) {
                try directory.remove(name)
            } catch  where error.code == ENOENT {
            } catch { throw EventLogFailure(error) }
        }
    }
}
