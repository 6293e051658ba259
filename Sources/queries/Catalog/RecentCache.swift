/// Cache of recent values with a bounded size. It has an older and a newer half. When the newer half is full, the older
/// half is dropped. A value that is used again moves to the newer half.
struct RecentCache<Key: Hashable, Value> {
    private var newer: [Key: Value] = [:]
    private var older: [Key: Value] = [:]
    private let half: Int

    /// - Parameter capacity: at least two.
    init(capacity: Int) {
        precondition(capacity >= 2, "a cache holds something")
        half = capacity / 2
    }

    var keys: [Key] { Array(newer.keys) + older.keys.filter { newer[$0] == nil } }

    subscript(key: Key) -> Value? {
        mutating get {
            if let value = newer[key] { return value }
            guard let value = older.removeValue(forKey: key) else { return nil }
            insert(value, for: key)
            return value
        }
    }

    mutating func insert(_ value: Value, for key: Key) {
        if newer.count >= half {
            older = newer
            newer = [:]
        }
        newer[key] = value
        assert(newer.count <= half && older.count <= half, "no more is remembered than there is room for")
    }

    mutating func removeAll() {
        newer = [:]
        older = [:]
    }
}
