import Synchronization

/// Metric that only increases. Recording is one atomic addition, from any thread.
public final class Counter: Sendable {
    let name: String
    let help: String
    private let total = Atomic<UInt64>(0)

    public init(_ name: String = "", _ help: String = "") { (self.name, self.help) = (name, help) }

    public func add(_ amount: UInt64 = 1) {
        total.wrappingAdd(amount, ordering: .relaxed)
    }

    public func add(_ amount: Int) {
        precondition(amount >= 0, "a counter only grows")
        add(UInt64(amount))
    }

    public var value: UInt64 {
        total.load(ordering: .relaxed)
    }
}

/// Duration that only increases. The metric shows it in seconds.
public final class TimeCounter: Sendable {
    let name: String
    let help: String
    private let nanoseconds = Atomic<UInt64>(0)

    public init(_ name: String = "", _ help: String = "") { (self.name, self.help) = (name, help) }

    /// Sets the total, which the caller has measured elsewhere.
    public func set(nanoseconds total: UInt64) { nanoseconds.store(total, ordering: .relaxed) }

    var seconds: Double { Double(nanoseconds.load(ordering: .relaxed)) / 1e9 }
}

/// Description that stays the same while the process runs. The metric shows it as labels, with the value 1.
public final class Information: Sendable {
    let name: String
    let help: String
    let labels: [(name: String, value: String)]

    public init(_ name: String, _ help: String, _ labels: [(name: String, value: String)]) {
        (self.name, self.help, self.labels) = (name, help, labels)
    }
}

/// Metric that increases and decreases, such as a position or a lag.
public final class Gauge: Sendable {
    let name: String
    let help: String
    private let current = Atomic<Int64>(0)

    public init(_ name: String = "", _ help: String = "") { (self.name, self.help) = (name, help) }

    public func set(_ value: Int64) {
        current.store(value, ordering: .relaxed)
    }

    /// Sets the gauge to an unsigned position. LSNs and offsets are far below 2^63.
    public func set(_ value: UInt64) {
        set(Int64(clamping: value))
    }

    public func add(_ amount: Int64) {
        current.wrappingAdd(amount, ordering: .relaxed)
    }

    public var value: Int64 {
        current.load(ordering: .relaxed)
    }
}

/// Label that distinguishes the members of a metric family. All its values are known in advance, so no client can make
/// the hub keep counters for invented names.
public protocol MetricLabel: CaseIterable, Hashable, RawRepresentable<String>, Sendable {
    /// Name of the label in Prometheus' text format, such as `op`.
    static var labelName: String { get }
}

/// Family of counters, one for each case of a label. Code that counts rows should look up its counter once and keep it.
public final class CounterFamily<Label: MetricLabel>: Sendable {
    let name: String
    let help: String
    let members: [Label: Counter]

    public init(_ name: String = "", _ help: String = "") {
        (self.name, self.help) = (name, help)
        members = Dictionary(uniqueKeysWithValues: Label.allCases.map { ($0, Counter()) })
    }

    public subscript(label: Label) -> Counter {
        guard let counter = members[label] else { preconditionFailure("\(label) is not among its own allCases") }
        return counter
    }
}
