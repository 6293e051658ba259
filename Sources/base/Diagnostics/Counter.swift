import Synchronization

/// A number that only grows. Recording is one atomic addition, from any thread.
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

/// Time that only grows, told in seconds.
public final class TimeCounter: Sendable {
    let name: String
    let help: String
    private let nanoseconds = Atomic<UInt64>(0)

    public init(_ name: String = "", _ help: String = "") { (self.name, self.help) = (name, help) }

    /// All there has been so far, as somebody else counts it.
    public func set(nanoseconds total: UInt64) { nanoseconds.store(total, ordering: .relaxed) }

    var seconds: Double { Double(nanoseconds.load(ordering: .relaxed)) / 1e9 }
}

/// What something is, in words that stay as long as the process: told as labels of a 1.
public final class Information: Sendable {
    let name: String
    let help: String
    let labels: [(name: String, value: String)]

    public init(_ name: String, _ help: String, _ labels: [(name: String, value: String)]) {
        (self.name, self.help, self.labels) = (name, help, labels)
    }
}

/// A number that moves both ways, such as a position or a lag.
public final class Gauge: Sendable {
    let name: String
    let help: String
    private let current = Atomic<Int64>(0)

    public init(_ name: String = "", _ help: String = "") { (self.name, self.help) = (name, help) }

    public func set(_ value: Int64) {
        current.store(value, ordering: .relaxed)
    }

    /// For positions, which are unsigned: LSNs and offsets stay far below 2^63.
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

/// The one label that tells the members of a family apart: a closed set, so that no peer can make us keep a counter for
/// every name it thinks of.
public protocol MetricLabel: CaseIterable, Hashable, RawRepresentable<String>, Sendable {
    /// The label's name in the exposition, e.g. `op`.
    static var labelName: String { get }
}

/// One counter for each case of a label. Look a member up once and keep it where rows are counted.
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
