import Bytes

/// Value in a changed row, to be looked up as a key.
struct Lookup: BitwiseCopyable {
    let change: UInt32
    let group: UInt32
    let hash: UInt32
    /// Byte offset of the value's canonical form in the transaction part.
    let start: UInt32
    let length: UInt32
    /// Number of the key that was found; `none` if there is none or the search has not been done.
    var key: UInt32 = .none

    @_lifetime(copy bytes)
    func value(in bytes: RawSpan) -> RawSpan { bytes.extracting(Int(start)..<Int(start) + Int(length)) }
}

/// Change that has been read but not matched yet.
struct Subject: BitwiseCopyable {
    /// Operation of the change. Empty, with no table, if no subscription can want the change.
    var operation: OperationSet = []
    var table: UInt32 = .none
    var relation: UInt32 = .none
    /// True if a predicate must be evaluated on the row.
    var needsImage = false
    /// True if the row lacks a column that some predicate reads.
    var isPartial = false
    /// True if the change was not matched, because its row lacks a column.
    var isLeft = false
}

/// Changes that are matched together.
///
/// In an index with 100,000 keys, every lookup waits for memory three times: for its slot in the hash table, its key
/// and its node. One lookup after the other, the waits would take most of the time. So all changes of a batch pass each
/// step together, and each step prefetches the memory that the next one reads.
struct Batch: ~Copyable {
    /// Maximum number of changes. It is large enough for the waits to overlap, and small enough for the rows to stay in
    /// the processor's first cache.
    static let maximumChanges = 32

    var subjects = Pool<Subject>(capacity: maximumChanges)
    var lookups = Pool<Lookup>(capacity: maximumChanges)

    mutating func removeAll() {
        subjects.removeAll()
        lookups.removeAll()
    }

    var isFull: Bool { subjects.count == Self.maximumChanges }
}
