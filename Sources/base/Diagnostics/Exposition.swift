/// Metric that can be written in Prometheus' text format.
protocol Instrument: Sendable {
    var typeName: String { get }
    var name: String { get }
    var help: String { get }

    /// Appends the lines of the metric. Each line has `labels` in addition to its own labels.
    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8])
}

/// Text format that Prometheus scrapes ("Exposition formats", text format 0.0.4; the content type is `text/plain;
/// version=0.0.4; charset=utf-8`).
enum Exposition {
    static func text(of instruments: [any Instrument]) -> [UInt8] { text(of: [([], instruments)]) }

    /// Returns the metrics of all projects. Each metric's name appears once, followed by the lines of all projects.
    static func text(of projects: [ProjectMetrics]) -> [UInt8] {
        text(of: projects.map { ($0.tenant.map { [("tenant", $0)] } ?? [], $0.instruments) })
    }

    /// Returns the metrics of several owners, such as projects. All owners must have the same metrics in the same
    /// order.
    private static func text(of owners: [(labels: [MetricLine.Label], instruments: [any Instrument])]) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(owners.count * 32 << 10)
        for index in owners.first?.instruments.indices ?? 0..<0 {
            appendHead(of: owners[0].instruments[index], to: &text)
            for owner in owners { owner.instruments[index].appendSamples(owner.labels, to: &text) }
        }
        return text
    }

    private static func appendHead(of instrument: any Instrument, to text: inout [UInt8]) {
        let (name, kind) = (instrument.name, instrument.typeName)
        text.append(contentsOf: "# HELP \(name) \(instrument.help.escapedHelp)\n# TYPE \(name) \(kind)\n".utf8)
    }

    static func isValidName(_ name: String) -> Bool {
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

/// Line of Prometheus' text format: a name, labels and a value.
enum MetricLine {
    typealias Label = (name: String, value: String)

    static func append(_ name: String, _ labels: [Label], _ value: some CustomStringConvertible, to text: inout [UInt8])
    {
        let labels = labels.map { "\($0.name)=\"\($0.value.escapedLabelValue)\"" }.joined(separator: ",")
        text.append(contentsOf: "\(name)\(labels.isEmpty ? "" : "{\(labels)}") \(value)\n".utf8)
    }
}

extension Counter: Instrument {
    static let typeName = "counter"
    var typeName: String { Self.typeName }

    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        MetricLine.append(name, labels, value, to: &text)
    }
}

extension CounterFamily: Instrument {
    var typeName: String { Counter.typeName }

    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        for member in Label.allCases {
            MetricLine.append(name, [(Label.labelName, member.rawValue)] + labels, self[member].value, to: &text)
        }
    }
}

extension Gauge: Instrument {
    static let typeName = "gauge"
    var typeName: String { Self.typeName }

    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        MetricLine.append(name, labels, value, to: &text)
    }
}

extension TimeCounter: Instrument {
    static let typeName = "counter"
    var typeName: String { Self.typeName }

    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        MetricLine.append(name, labels, seconds, to: &text)
    }
}

extension Information: Instrument {
    static let typeName = "gauge"
    var typeName: String { Self.typeName }

    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        MetricLine.append(name, self.labels + labels, 1, to: &text)
    }
}

extension Histogram: Instrument {
    static let typeName = "histogram"
    var typeName: String { Self.typeName }

    /// Appends the lines of the histogram. Of its 976 buckets, only powers of two in the useful range of the unit
    /// appear, because their bounds are exact. (A bound is written as 2^k but counts the values below it, one
    /// nanosecond or byte less.)
    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        let snapshot = snapshot()
        for exponent in unit.shownExponents {
            let bound: UInt64 = 1 << UInt64(exponent)
            let count = snapshot.count(atMost: bound - 1)
            MetricLine.append("\(name)_bucket", [("le", unit.exposed(bound))] + labels, count, to: &text)
        }
        MetricLine.append("\(name)_bucket", [("le", "+Inf")] + labels, snapshot.count, to: &text)
        MetricLine.append("\(name)_sum", labels, unit.exposed(snapshot.sum), to: &text)
        MetricLine.append("\(name)_count", labels, snapshot.count, to: &text)
    }
}

extension Histogram.Unit {
    /// Exponents of the powers of two that the metric shows: 2^13 ns (8 µs) to 2^36 ns (69 s), or 2^6 bytes to 1 GiB.
    fileprivate var shownExponents: ClosedRange<Int> {
        switch self {
        case .seconds: 13...36
        case .bytes: 6...30
        }
    }

    fileprivate func exposed(_ value: UInt64) -> String {
        switch self {
        case .seconds: "\(Double(value) / 1e9)"
        case .bytes: "\(value)"
        }
    }
}

extension String {
    fileprivate var escapedHelp: String {
        escaped { $0 == "\\" || $0 == "\n" }
    }

    fileprivate var escapedLabelValue: String {
        escaped { $0 == "\\" || $0 == "\n" || $0 == "\"" }
    }

    private func escaped(where mustEscape: (Character) -> Bool) -> String {
        var result = ""
        for character in self {
            guard mustEscape(character) else {
                result.append(character)
                continue
            }
            result += character == "\n" ? "\\n" : "\\\(character)"
        }
        return result
    }
}
