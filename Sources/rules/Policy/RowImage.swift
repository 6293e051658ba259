import Bytes
import Change

/// Position of one column's value in a row image.
public struct ColumnPlace: Sendable {
    public enum Kind: UInt8, Sendable {
        /// The image has no value: the publication leaves the column out, its large value did not change and was not
        /// sent, or the replica identity does not hold it.
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

/// Row image that gives access to columns by slot, without walking the image again.
public struct RowImage: ~Escapable {
    @usableFromInline let bytes: RawSpan
    @usableFromInline let places: Span<ColumnPlace>
    /// Value of `now()`: microseconds since 2000-01-01 in UTC. Without it, PostgreSQL is asked about conditions that
    /// need it.
    public let moment: Int64?

    /// Creates a row image. `places` has an element for each slot of the table, with offsets inside `bytes`.
    @inlinable
    @_lifetime(copy bytes, copy places)
    public init(bytes: RawSpan, places: Span<ColumnPlace>, moment: Int64? = nil) {
        self.bytes = bytes
        self.places = places
        self.moment = moment
    }

    @inlinable
    public func kind(_ slot: Int) -> ColumnPlace.Kind { slot < places.count ? places[slot].kind : .absent }

    /// Returns the text of a column whose kind is `.text`.
    @inlinable
    @_lifetime(copy self)
    public func text(_ slot: Int) -> RawSpan {
        assert(kind(slot) == .text, "the text of a column that has none")
        let place = places[slot]
        let start = Int(place.start)
        return bytes.extracting(start..<start + Int(place.length))
    }

    /// Returns a copy of a column's value.
    public func value(_ slot: Int) -> ColumnText {
        switch kind(slot) {
        case .text: .text(text(slot).copied())
        case .null: .null
        case .absent: .absent
        }
    }
}
