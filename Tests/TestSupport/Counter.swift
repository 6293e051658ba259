import Synchronization

/// Counter from which several threads may take numbers.
public final class Counter: Sendable {
    private let value: Mutex<UInt64>

    public init(_ first: UInt64 = 0) { value = Mutex(first) }

    public func next() -> UInt64 {
        value.withLock { value in
            defer { value += 1 }
            return value
        }
    }

    public var current: UInt64 { value.withLock { $0 } }
}
