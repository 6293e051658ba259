/// Dictionary with a maximum size that drops its oldest entries. For a missing key it returns `never` if it has dropped
/// nothing so far, and `mayBeForgotten` otherwise.
public struct BoundedMemory<Key: Hashable, Value> {
    public enum Recollection {
        case kept(Value)
        case never
        /// The dictionary once had an entry for the key, or never had one: it cannot tell. The caller must tell the
        /// client that something may be missing.
        case mayBeForgotten
    }

    private let maximum: Int
    private var values: [Key: Value] = [:]
    /// Keys in the order in which they were stored, for dropping the oldest. Keys of removed entries may still be
    /// listed.
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

    /// Result that a key without an entry gives: `mayBeForgotten` if entries were dropped, else `never`.
    public var ofAnything: Recollection { hasForgotten ? .mayBeForgotten : .never }

    /// Removes the key's entry and returns what was stored for the key.
    @discardableResult
    public mutating func take(_ key: Key) -> Recollection {
        defer { if values.removeValue(forKey: key) != nil { order.removeAll { $0 == key } } }
        return self[key]
    }

    /// Makes the result for every missing key `mayBeForgotten`, because an entry could not be stored.
    public mutating func forget() { hasForgotten = true }
}
