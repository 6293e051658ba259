import Glibc
import System

/// Clock that starts at the opening of the log and then counts monotonic time. A step of the wall clock does not change
/// it.
struct SteadyClock: Sendable {
    private let wall: Int64
    private let began: UInt64
    private let monotonic: @Sendable () -> UInt64

    /// - Parameter wall: microseconds since 1970, as the clock shows them now.
    init(wall: Int64, _ monotonic: @escaping @Sendable () -> UInt64) {
        self.wall = wall
        self.monotonic = monotonic
        began = monotonic()
    }

    /// Present time in microseconds since 1970.
    var now: Int64 { wall + Int64(clamping: (monotonic() - began) / 1000) }
}

extension EventLogWriter {
    /// Deletes the oldest sealed segments that are too old or make the log too large, and returns them.
    ///
    /// Deletes whole segments only, never the active one. Readers in a deleted segment get `outsideRetention` on their
    /// next step.
    @discardableResult
    public func enforceRetention(now: Int64) throws(EventLogFailure) -> [SegmentSummary] {
        var deleted: [SegmentSummary] = []
        guard let first = sealed.first, isExpired(first, now) else { return deleted }
        // During an erasure no segment is deleted; the next call comes soon.
        guard let alone = try? EventLogErasure.lock(directory) else { return deleted }
        defer { withExtendedLifetime(alone) {} }
        while let oldest = sealed.first, isExpired(oldest, now) {
            try delete(oldest)
            sealed.removeFirst()
            sealedAt[oldest.sequence] = nil
            deleted.append(oldest)
        }
        // If this sync fails, a power cut may bring the names back, at worst from the oldest on. The next call deletes
        // them again.
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

    /// Returns the latest commit time of a segment. Commit times come from the database's clock. A time in the future
    /// must not keep its segment until then, so the creation time of the next segment replaces it.
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
