import Bytes
import Diagnostics
import Gateway
import Synchronization
import System
import WebSocket

/// Metrics of each running project over the last hour, one sample every ten seconds. A web console can draw them
/// without a metrics server. They are kept in memory only, so a restart of the hub discards them.
final class HourOfValues: Sendable {
    /// Metric that is sampled, by its name without the prefix `tidewire_`.
    struct Figure: Sendable {
        let name: String
        /// True for a counter that grows from the hub's start; false for a gauge.
        let isTotal: Bool
        let read: @Sendable (RunningProject) -> Int64

        private init(_ name: String, isTotal: Bool = false, _ read: @escaping @Sendable (RunningProject) -> Int64) {
            (self.name, self.isTotal, self.read) = (name, isTotal, read)
        }

        private static func total(
            _ name: String, _ read: @escaping @Sendable (ProjectMetrics) -> Counter
        ) -> Figure {
            Figure(name, isTotal: true) { Int64(clamping: read($0.metrics).value) }
        }

        private static func value(_ name: String, _ read: @escaping @Sendable (ProjectMetrics) -> Gauge) -> Figure {
            Figure(name) { read($0.metrics).value }
        }

        static let all: [Figure] = [
            Figure("users") { Int64($0.project.userCount) }, value("channels") { $0.channels },
            value("subscriptions") { $0.subscriptions }, value("feeds") { $0.feeds },
            value("replication_connected") { $0.replicationConnected }, value("slot_lag_bytes") { $0.slotLagBytes },
            value("slot_lag_seconds") { $0.slotLagSeconds }, value("slot_kept_bytes") { $0.slotKeptBytes },
            value("log_end_offset") { $0.logEndOffset }, value("log_size_bytes") { $0.logSizeBytes },
            value("data_free_bytes") { $0.dataFreeBytes }, value("held_bytes") { $0.heldBytes },
            value("slowest_reader_offset") { $0.slowestReaderOffset },
            total("transactions_ingested_total") { $0.transactionsIngested },
            total("bytes_ingested_total") { $0.bytesIngested }, total("gaps_total") { $0.gaps },
            total("messages_received_total") { $0.messagesReceived }, total("deliveries_total") { $0.deliveries },
            total("broadcasts_total") { $0.broadcasts }, total("broadcast_deliveries_total") { $0.broadcastDeliveries },
            total("presence_changes_total") { $0.presenceChanges },
            total("judge_questions_total") { $0.judgeQuestions },
        ]
    }

    /// Samples of one project, oldest first: their times, and the values of each metric.
    struct Samples: Sendable {
        private(set) var times: [Int64] = []
        private(set) var values: [[Int64]] = Array(repeating: [], count: Figure.all.count)

        mutating func add(_ sample: [Int64], at time: Int64, keeping most: Int) {
            times.append(time)
            for index in values.indices { values[index].append(sample[index]) }
            guard times.count > most else { return }
            let surplus = times.count - most
            times.removeFirst(surplus)
            for index in values.indices { values[index].removeFirst(surplus) }
            assert(values.allSatisfy { $0.count == times.count }, "each figure has a value at each time")
        }
    }

    static let interval = Duration.seconds(10)
    static let mostSamples = 360
    /// Maximum number of samples of all projects together. With many projects, each keeps fewer, so that memory stays
    /// limited.
    static let mostOfAll = 72_000

    private let samples = Mutex<[String: Samples]>([:])
    private let isClosed = Atomic<Bool>(false)
    private let pulse = Pulse()
    private let thread = Mutex<BackgroundThread?>(nil)

    /// Starts a thread that samples the projects that `running` returns.
    func start(_ running: @escaping @Sendable () -> [String: RunningProject]) throws(SystemError) {
        let started = try BackgroundThread("values") { [self] in
            var next = Clock.monotonicNanoseconds()
            var seen: UInt64 = 0
            while !isClosed.load(ordering: .acquiring) {
                take(running())
                next += Self.interval.wholeNanoseconds
                // After the machine was suspended, the sampling times that have passed are left out.
                next = max(next, Clock.monotonicNanoseconds())
                seen = pulse.wait(beyond: seen, untilMonotonic: next)
            }
        }
        thread.withLock { $0 = started }
    }

    func close() {
        isClosed.store(true, ordering: .releasing)
        pulse.beat()
        thread.withLock { $0.take() }?.join()
    }

    private func take(_ projects: [String: RunningProject]) {
        let now = Clock.unixMicroseconds() / 1_000_000
        let taken = projects.mapValues { project in Figure.all.map { $0.read(project) } }
        let most = min(Self.mostSamples, max(6, Self.mostOfAll / max(1, projects.count)))
        samples.withLock { samples in
            // Discards the samples of a project that has ended, because another project may get its name.
            samples = samples.filter { taken[$0.key] != nil }
            for (name, values) in taken { samples[name, default: Samples()].add(values, at: now, keeping: most) }
        }
    }

    /// Returns the HTTP answer with the samples of the project.
    func told(of name: String) -> HTTPResponse {
        let samples = samples.withLock { $0[name] } ?? Samples()
        let figures = zip(Figure.all, samples.values).map { figure, values in
            (
                figure.name,
                JSONValue.object(
                    JSONObject([
                        ("total", .bool(figure.isTotal)), ("values", .array(values.map { .number(String($0)) })),
                    ]))
            )
        }
        let data = JSONObject([
            ("interval_seconds", .number(Int(Self.interval.wholeSeconds))),
            ("times", .array(samples.times.map { .string(TimeText.write($0) + "Z") })),
            ("figures", .object(JSONObject(figures))),
        ])
        return .json(.ok, JSONValue.object(JSONObject([("data", .object(data))])).bytes)
    }
}
