import Change

/// Schemas (relations) of rows in the log, by fingerprint.
struct RelationBook: ~Copyable {
    var maps = Pool<RelationMap>()
    private var numbers: [UInt64: UInt32] = [:]
    /// Cache of recently used relations. Consecutive changes in a log concern few tables. A fingerprint is already a
    /// hash.
    private var recent = Pool<Recent>()
    private let limit: Int

    struct Recent {
        var fingerprint: UInt64
        var number: UInt32
    }

    init(limit: Int) {
        self.limit = limit
        forgetRecent()
    }

    @inline(__always)
    mutating func find(_ fingerprint: UInt64) -> UInt32? {
        let place = Int(truncatingIfNeeded: fingerprint & 63)
        let seen = recent[place]
        if seen.fingerprint == fingerprint, seen.number != .none {
            assert(numbers[fingerprint] == seen.number, "a relation that was forgotten")
            return seen.number
        }
        guard let number = numbers[fingerprint] else { return nil }
        recent[place] = Recent(fingerprint: fingerprint, number: number)
        return number
    }

    mutating func insert(_ fingerprint: UInt64, _ map: consuming RelationMap) {
        if let number = numbers[fingerprint] {
            maps[Int(number)] = map
            return
        }
        // Schemas change seldom, but over years there are many. The index asks again for a discarded one.
        if maps.count >= limit { removeAll() }
        numbers[fingerprint] = UInt32(maps.count)
        maps.append(map)
    }

    /// Removes the relations of a table.
    mutating func remove(table oid: UInt32) {
        for (fingerprint, number) in numbers where maps[Int(number)].oid == oid { numbers[fingerprint] = nil }
        forgetRecent()
        if numbers.isEmpty { maps.removeAll() }
    }

    mutating func removeAll() {
        numbers = [:]
        maps.removeAll()
        forgetRecent()
    }

    private mutating func forgetRecent() {
        recent.removeAll()
        recent.resize(to: 64, filling: Recent(fingerprint: 0, number: .none))
    }
}
