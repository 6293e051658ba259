import Bytes

/// Value of a changed row that may be a key.
struct Lookup: BitwiseCopyable {
    let change: UInt32
    let group: UInt32
    let hash: UInt32
    /// Offset of the value's canonical form in the part's bytes.
    let start: UInt32
    let length: UInt32
    /// Number of the key, once the key is known.
    var key: UInt32 = .none

    @_lifetime(copy bytes)
    func value(in bytes: RawSpan) -> RawSpan { bytes.extracting(Int(start)..<Int(start) + Int(length)) }
}

/// Change that has been read but not yet matched.
struct Subject: BitwiseCopyable {
    /// Operation of the change. Empty, with no table, if no subscription can want the change.
    var operation: OperationSet = []
    var table: UInt32 = .none
    var relation: UInt32 = .none
    /// True if a predicate has to see the row.
    var needsImage = false
    /// True if the image lacks a column that some predicate looks at.
    var isPartial = false
    /// True if the change is not judged because its image lacks a column.
    var isLeft = false
}

/// Changes that are matched together.
///
/// Among 100,000 keys, every lookup waits for memory three times: for its slot, its key and its node. One after the
/// other, these waits are most of the time. So some changes go through each step together, and each step prefetches the
/// memory that the next step reads.
struct Batch: ~Copyable {
    /// Maximum number of changes: enough for waits to overlap, few enough for the rows to stay in the nearest cache.
    static let maximumChanges = 32

    var subjects = Pool<Subject>(capacity: maximumChanges)
    var lookups = Pool<Lookup>(capacity: maximumChanges)

    mutating func removeAll() {
        subjects.removeAll()
        lookups.removeAll()
    }

    var isFull: Bool { subjects.count == Self.maximumChanges }
}
