import Bytes
import Change

/// Place of one column's value in a row image.
public struct ColumnPlace: Sendable {
    public enum Kind: UInt8, Sendable {
        /// The image lacks the value. The publication omits the column, or a large value did not change and was not
        /// sent, or the replica identity does not include the column.
        case absent
        case null
        case text
    }

    public var kind: Kind
    public var start: UInt32
    public var length: UInt32

    public static var absent: ColumnPlace { ColumnPlace(kind: .absent, start: 0, length: 0) }

    public init(kind: Kind, start: UInt32, length: UInt32) {
        self.kind = kind
        self.start = start
        self.length = length
    }
}

/// Row image with access to columns by slot, without parsing it again.
///
/// An image for filters on what changed also has the row before the change. The slots of that row's columns follow those
/// of the row.
public struct RowImage: ~Escapable {
    /// Row before the change, as filters may use it.
    public enum OldRow: UInt8, Sendable {
        /// No such row: the change inserts the row, or the subscriber may not see what the row was.
        case none
        /// The image has the row before an update. Single values may be absent.
        case known
        /// The change deletes the row, which is its own old row.
        case deleted
        /// Row of which it is not certain that the subscriber may see it.
        case undecided
    }

    @usableFromInline let bytes: RawSpan
    @usableFromInline let places: Span<ColumnPlace>
    /// Value of `now()` in microseconds since 2000-01-01 UTC. If nil, PostgreSQL must decide conditions that need it.
    public let moment: Int64?
    public let oldRow: OldRow
    /// Time of the change's commit in microseconds since 2000-01-01 UTC; nil if it is not known.
    public let committed: Int64?

    /// Creates a row image. `places` has one element for each column slot of the table; its offsets refer to `bytes`.
    @inlinable
    @_lifetime(copy bytes, copy places)
    public init(
        bytes: RawSpan, places: Span<ColumnPlace>, moment: Int64? = nil, committed: Int64? = nil,
        oldRow: OldRow = .none
    ) {
        self.bytes = bytes
        self.places = places
        self.moment = moment
        self.committed = committed
        self.oldRow = oldRow
    }

    /// Returns the image with another row before the change.
    @_lifetime(copy self)
    func with(oldRow: OldRow) -> RowImage {
        RowImage(bytes: bytes, places: places, moment: moment, committed: committed, oldRow: oldRow)
    }

    /// Returns the image of the row before the change, whose first column has the slot `start`.
    @_lifetime(copy self)
    func before(startingAt start: Int) -> RowImage {
        let first = min(start, places.count)
        return RowImage(bytes: bytes, places: places.extracting(first..<places.count), moment: moment)
    }

    @inlinable
    public func kind(_ slot: Int) -> ColumnPlace.Kind { slot < places.count ? places[slot].kind : .absent }

    /// Returns the text of a column. Its kind must be `.text`.
    @inlinable
    @_lifetime(copy self)
    public func text(_ slot: Int) -> RawSpan {
        assert(kind(slot) == .text, "the text of a column that has none")
        let place = places[slot]
        let start = Int(place.start)
        return bytes.extracting(start..<start + Int(place.length))
    }

    /// Returns the value of a column as a copy.
    public func value(_ slot: Int) -> ColumnText {
        switch kind(slot) {
        case .text: .text(text(slot).copied())
        case .null: .null
        case .absent: .absent
        }
    }
}
