import Bytes
import Change

/// Value in a row image, in the plain form that tests write and compare.
public enum Cell: Sendable, Hashable {
    case null
    /// Large value that the change did not touch.
    case unchanged
    case text(String)
    case binary([UInt8])
}

extension Cell: ExpressibleByStringLiteral, ExpressibleByNilLiteral, ExpressibleByIntegerLiteral {
    public init(stringLiteral value: String) { self = .text(value) }
    public init(nilLiteral: ()) { self = .null }
    public init(integerLiteral value: Int) { self = .text(String(value)) }
}

extension Cell {
    /// Returns the cells of a row image. Throws if the image is malformed.
    public static func row(_ tuple: borrowing Tuple) throws(ByteError) -> [Cell] {
        var columns = tuple.columns()
        var cells: [Cell] = []
        while let value = try columns.next() {
            switch value {
            case .null: cells.append(.null)
            case .unchanged: cells.append(.unchanged)
            case .text(let text): cells.append(.text(text.text))
            case .binary(let bytes): cells.append(.binary(bytes.copied()))
            }
        }
        return cells
    }
}
