import Synchronization

/// The metrics of a process in the order they were declared, each with the name and help its readers see.
public final class MetricsRegistry: Sendable {
    enum Instrument: Sendable {
        case counter(Counter)
        case counters(label: String, members: [(labelValue: String, counter: Counter)])
        case gauge(Gauge)
        case histogram(Histogram)
    }

    struct Metric: Sendable {
        let name: String
        let help: String
        let instrument: Instrument
    }

    private let declared = Mutex<[Metric]>([])

    public init() {}

    var metrics: [Metric] {
        declared.withLock { $0 }
    }

    public func counter(_ name: String, _ help: String) -> Counter {
        let counter = Counter()
        add(Metric(name: name, help: help, instrument: .counter(counter)))
        return counter
    }

    public func counters<Label: MetricLabel>(_ name: String, _ help: String, by: Label.Type) -> CounterFamily<Label> {
        let family = CounterFamily<Label>()
        let members = Label.allCases.map { (labelValue: $0.rawValue, counter: family[$0]) }
        add(Metric(name: name, help: help, instrument: .counters(label: Label.labelName, members: members)))
        return family
    }

    public func gauge(_ name: String, _ help: String) -> Gauge {
        let gauge = Gauge()
        add(Metric(name: name, help: help, instrument: .gauge(gauge)))
        return gauge
    }

    public func histogram(_ name: String, _ help: String, unit: Histogram.Unit) -> Histogram {
        let histogram = Histogram(unit: unit)
        add(Metric(name: name, help: help, instrument: .histogram(histogram)))
        return histogram
    }

    private func add(_ metric: Metric) {
        precondition(Self.isValidName(metric.name), "\(metric.name) is not a Prometheus metric name")
        declared.withLock { metrics in
            precondition(metrics.count < Limits.maximumMetrics, "more metrics than Limits.maximumMetrics")
            precondition(!metrics.contains { $0.name == metric.name }, "\(metric.name) is declared twice")
            metrics.append(metric)
        }
    }

    private static func isValidName(_ name: String) -> Bool {
        guard let first = name.utf8.first, first < UInt8(ascii: "0") || first > UInt8(ascii: "9") else { return false }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: ":"): true
            default: false
            }
        }
    }
}
