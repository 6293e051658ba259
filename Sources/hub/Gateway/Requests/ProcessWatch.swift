import Diagnostics
import Synchronization
import System

/// Figures of the process as metrics. The kernel is asked when the metrics are read, but at most every few seconds.
final class ProcessWatch: Sendable {
    private let metrics: ProcessMetrics
    /// Monotonic time of the last look.
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

    /// Updates the metrics. Figures that could not be read keep their values.
    private func take(_ figures: ProcessFigures) {
        metrics.cpuTime.set(nanoseconds: figures.cpuNanoseconds)
        if let bytes = figures.residentBytes { metrics.residentBytes.set(bytes) }
        if let bytes = figures.virtualBytes { metrics.virtualBytes.set(bytes) }
        if let count = figures.openDescriptors { metrics.openDescriptors.set(Int64(count)) }
        if let count = figures.maximumDescriptors { metrics.maximumDescriptors.set(Int64(count)) }
    }
}
