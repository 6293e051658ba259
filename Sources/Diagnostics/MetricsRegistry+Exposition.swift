/// The text form that Prometheus scrapes ("Exposition formats", text format 0.0.4; the content type is
/// `text/plain; version=0.0.4; charset=utf-8`).
extension MetricsRegistry {
    public func render() -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(16 << 10)
        for metric in metrics {
            metric.append(to: &text)
        }
        return text
    }
}

extension MetricsRegistry.Metric {
    fileprivate func append(to text: inout [UInt8]) {
        text.append(contentsOf: "# HELP \(name) \(help.escapedHelp)\n# TYPE \(name) \(instrument.typeName)\n".utf8)
        switch instrument {
        case .counter(let counter):
            text.append(contentsOf: "\(name) \(counter.value)\n".utf8)
        case .counters(let label, let members):
            for member in members {
                let labels = "{\(label)=\"\(member.labelValue.escapedLabelValue)\"}"
                text.append(contentsOf: "\(name)\(labels) \(member.counter.value)\n".utf8)
            }
        case .gauge(let gauge):
            text.append(contentsOf: "\(name) \(gauge.value)\n".utf8)
        case .histogram(let histogram):
            append(histogram, to: &text)
        }
    }

    /// Of the 976 buckets only the powers of two are shown, in the span that matters for the unit: their bounds are exact.
    /// (A bound is read as 2^k and counts the values below it: they differ by one nanosecond or byte.)
    private func append(_ histogram: Histogram, to text: inout [UInt8]) {
        let snapshot = histogram.snapshot()
        let total = snapshot.count
        for exponent in histogram.unit.shownExponents {
            let bound: UInt64 = 1 << UInt64(exponent)
            let label = histogram.unit.exposed(bound)
            text.append(contentsOf: "\(name)_bucket{le=\"\(label)\"} \(snapshot.count(atMost: bound - 1))\n".utf8)
        }
        text.append(contentsOf: "\(name)_bucket{le=\"+Inf\"} \(total)\n".utf8)
        text.append(contentsOf: "\(name)_sum \(histogram.unit.exposed(snapshot.sum))\n".utf8)
        text.append(contentsOf: "\(name)_count \(total)\n".utf8)
    }
}

extension MetricsRegistry.Instrument {
    fileprivate var typeName: String {
        switch self {
        case .counter, .counters: "counter"
        case .gauge: "gauge"
        case .histogram: "histogram"
        }
    }
}

extension Histogram.Unit {
    /// 2^13 ns is 8 µs and 2^36 ns is 69 s; 2^6 bytes to 1 GiB.
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
