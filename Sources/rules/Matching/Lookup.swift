import Bytes

/// A value of a changed row that may be somebody's key.
struct Lookup: BitwiseCopyable {
    let change: UInt32
    let group: UInt32
    let hash: UInt32
    /// The value in its canonical form, in the part's bytes.
    let start: UInt32
    let length: UInt32
    /// The key it is, once that is known.
    var key: UInt32 = .none

    @_lifetime(copy bytes)
    func value(in bytes: RawSpan) -> RawSpan { bytes.extracting(Int(start)..<Int(start) + Int(length)) }
}

/// A change between being read and being matched.
struct Subject: BitwiseCopyable {
    /// Empty, with no table, for what no subscription can want.
    var operation: OperationSet = []
    var table: UInt32 = .none
    var relation: UInt32 = .none
    /// A predicate has to see the row.
    var needsImage = false
    /// The image lacks a column that some predicate looks at.
    var isPartial = false
    /// It is not judged for that.
    var isLeft = false
}

/// The changes that are matched together.
///
/// Among 100,000 keys every lookup waits for memory three times: for its slot, its key and its node. One after the
/// other that is most of the time; so some changes go through each step together, and each step asks for the memory
/// that the next one reads.
struct Batch: ~Copyable {
    /// Enough for waits to overlap, few enough for the rows to stay in the nearest cache.
    static let maximumChanges = 32

    var subjects = Pool<Subject>(capacity: maximumChanges)
    var lookups = Pool<Lookup>(capacity: maximumChanges)

    mutating func removeAll() {
        subjects.removeAll()
        lookups.removeAll()
    }

    var isFull: Bool { subjects.count == Self.maximumChanges }
}
