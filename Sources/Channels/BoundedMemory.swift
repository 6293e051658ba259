/// A dictionary with a maximum that drops its oldest entries, and owes that to whoever asks: a key it does not have is
/// `never` known only as long as nothing was dropped.
public struct BoundedMemory<Key: Hashable, Value> {
    public enum Recollection {
        case kept(Value)
        case never
        /// It may have been dropped. Whoever asked must be told what follows from that.
        case mayBeForgotten
    }

    private let maximum: Int
    private var values: [Key: Value] = [:]
    /// Keys in the order they were remembered, some of which are taken out by now.
    private var order: [Key] = []
    private var hasForgotten = false

    public init(maximum: Int) {
        precondition(maximum > 0, "a memory of nothing")
        self.maximum = maximum
    }

    public var count: Int { values.count }

    public mutating func remember(_ value: Value, for key: Key) {
        if values.updateValue(value, forKey: key) != nil { order.removeAll { $0 == key } }
        order.append(key)
        while values.count > maximum {
            values[order.removeFirst()] = nil
            hasForgotten = true
        }
    }

    public subscript(key: Key) -> Recollection {
        if let value = values[key] { return .kept(value) }
        return ofAnything
    }

    /// The answer for a key that nothing was remembered for.
    public var ofAnything: Recollection { hasForgotten ? .mayBeForgotten : .never }

    /// Removes the entry; the answer for its key is `never` afterwards, or `mayBeForgotten`.
    @discardableResult
    public mutating func take(_ key: Key) -> Recollection {
        defer { if values.removeValue(forKey: key) != nil { order.removeAll { $0 == key } } }
        return self[key]
    }

    /// Owes everything that is not kept: what was to be remembered could not be.
    public mutating func forget() { hasForgotten = true }
}
