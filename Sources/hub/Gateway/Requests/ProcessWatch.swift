import Diagnostics
import Synchronization
import System

/// Metrics of the process, such as CPU time and memory. The hub reads them from the kernel when a client reads the
/// metrics, but not more often than every few seconds.
final class ProcessWatch: Sendable {
    private let metrics: ProcessMetrics
    /// Monotonic time in nanoseconds of the last reading; nil before the first.
    private let lookedAt = Mutex<UInt64?>(nil)

    init(_ metrics: ProcessMetrics) {
        self.metrics = metrics
        if let began = ProcessFigures.startedAt() { metrics.startTime.set(began) }
    }

    func look(at now: UInt64) {
        let isDue = lookedAt.withLock { last in
            if let last, now - min(now, last) < Limits.processFiguresInterval.wholeNanoseconds { return false }
            last = now
            return true
        }
        if isDue { take(ProcessFigures.now()) }
    }

    /// Updates the metrics. A figure that could not be read keeps its earlier value.
    private func take(_ figures: ProcessFigures) {
        metrics.cpuTime.set(nanoseconds: figures.cpuNanoseconds)
        if let bytes = figures.residentBytes { metrics.residentBytes.set(bytes) }
        if let bytes = figures.virtualBytes { metrics.virtualBytes.set(bytes) }
        if let count = figures.openDescriptors { metrics.openDescriptors.set(Int64(count)) }
        if let count = figures.maximumDescriptors { metrics.maximumDescriptors.set(Int64(count)) }
    }
}
