import Diagnostics
import Synchronization
import System

/// File for the next segment, prepared on a separate thread while the current segment is being filled.
///
/// If the file is filled with zeros, each later sync is cheaper, because the file system does not have to record new
/// blocks. But the disk then writes every byte twice, so the thread writes zeros only while the log grows slowly. If
/// the file is not ready when it is needed, the writer creates another one.
final class SpareSegment: Sendable {
    private let file: any StorageFile
    private let isReady = Atomic(false)
    private let isCancelled = Atomic(false)
    private let thread: Mutex<BackgroundThread?> = Mutex(nil)

    /// Starts the preparation; nil if the file cannot be created.
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
            // The disk may be full now. If it still is when the segment is needed, the writer reports that.
        }
    }

    private func fillWithZeros(_ bytes: UInt64) throws(SystemError) {
        var at: UInt64 = 0
        while at < bytes, !isCancelled.load(ordering: .relaxed) {
            let began = Clock.monotonicNanoseconds()
            let end = min(at + UInt64(Limits.zeroFillBytes), bytes)
            try file.writeZeros(from: at, to: end)
            // After each step the thread syncs and rests three times as long, at most 50 ms, because syncs of the log
            // have priority.
            try file.sync()
            at = end
            BackgroundThread.rest(nanoseconds: min(3 * (Clock.monotonicNanoseconds() - began), 50_000_000))
        }
    }

    /// Ends the preparation and returns the file if it is ready. The file keeps its temporary name.
    func take() -> (any StorageFile)? {
        isCancelled.store(true, ordering: .relaxed)
        thread.withLock { thread in
            thread?.join()
            thread = nil
        }
        return isReady.load(ordering: .acquiring) ? file : nil
    }
}
