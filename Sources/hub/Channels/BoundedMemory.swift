/// Dictionary with a maximum size that drops its oldest entries. A missing key is `never` only if nothing was dropped;
/// else it is `mayBeForgotten`.
public struct BoundedMemory<Key: Hashable, Value> {
    public enum Recollection {
        case kept(Value)
        case never
        /// The key may have been dropped. The caller must tell the client what may be missing.
        case mayBeForgotten
    }

    private let maximum: Int
    private var values: [Key: Value] = [:]
    /// Keys in the order in which they were remembered; some of them have been taken out since.
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

    /// Answer for a key for which nothing was remembered.
    public var ofAnything: Recollection { hasForgotten ? .mayBeForgotten : .never }

    /// Removes the entry; the answer for its key is `never` afterwards, or `mayBeForgotten`.
    @discardableResult
    public mutating func take(_ key: Key) -> Recollection {
        defer { if values.removeValue(forKey: key) != nil { order.removeAll { $0 == key } } }
        return self[key]
    }

    /// Marks every missing key as possibly forgotten, because an entry could not be kept.
    public mutating func forget() { hasForgotten = true }
}
