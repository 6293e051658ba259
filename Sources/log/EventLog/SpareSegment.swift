import Diagnostics
import Synchronization
import System

/// The next segment's file, made ready on a thread of its own while the present one fills up.
///
/// Filling with zeros first makes each later sync cheaper (no extent to note in the file system's journal) and
/// costs the disk every byte twice, so it is done in calm times only. Not being ready is no error: the writer then makes a
/// file itself.
final class SpareSegment: Sendable {
    private let file: any StorageFile
    private let isReady = Atomic(false)
    private let isCancelled = Atomic(false)
    private let thread: Mutex<BackgroundThread?> = Mutex(nil)

    /// Begins to prepare; nil if not even that works.
    static func prepare(in directory: any StorageDirectory, bytes: UInt64, withZeros: Bool) -> SpareSegment? {
        guard let file = try? directory.open(LogFile.spare, for: .creating) else { return nil }
        let spare = SpareSegment(file: file)
        let thread = try? BackgroundThread("log-spare", LogScope.carried { spare.fill(bytes, withZeros: withZeros) })
        spare.thread.withLock { $0 = thread }
        return spare
    }

    private init(file: any StorageFile) { self.file = file }

    private func fill(_ bytes: UInt64, withZeros: Bool) {
        do throws(SystemError) {
            try file.reserve(bytes)
            if withZeros { try fillWithZeros(bytes) }
            try file.sync()
            isReady.store(true, ordering: .releasing)
        } catch {
            // The disk may be full just now; the writer will say so if it is when a segment is needed.
        }
    }

    private func fillWithZeros(_ bytes: UInt64) throws(SystemError) {
        var at: UInt64 = 0
        while at < bytes, !isCancelled.load(ordering: .relaxed) {
            let began = Clock.monotonicNanoseconds()
            let end = min(at + UInt64(Limits.zeroFillBytes), bytes)
            try file.writeZeros(from: at, to: end)
            // Each step by itself, and a rest three times as long: the disk belongs to the log's own syncs.
            try file.sync()
            at = end
            BackgroundThread.rest(nanoseconds: min(3 * (Clock.monotonicNanoseconds() - began), 50_000_000))
        }
    }

    /// Ends the preparation and gives the file if it was ready. The file keeps its name until the caller changes it.
    func take() -> (any StorageFile)? {
        isCancelled.store(true, ordering: .relaxed)
        thread.withLock { thread in
            thread?.join()
            thread = nil
        }
        return isReady.load(ordering: .acquiring) ? file : nil
    }
}
