/// Cache of recently used values with a limited size. It has a newer and an older half. When the newer half is full, it
/// becomes the older half and the old one is discarded. Using a value moves it to the newer half.
struct RecentCache<Key: Hashable, Value> {
    private var newer: [Key: Value] = [:]
    private var older: [Key: Value] = [:]
    private let half: Int

    /// Creates the cache.
    ///
    /// - Parameter capacity: the maximum number of values, at least two.
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
