import Bytes

/// A text that is a little different for each client: `{n}` is its number, `{n%10}` the rest of it by ten.
public struct ClientText: Sendable {
    private enum Piece: Sendable {
        case literal([UInt8])
        case number
        case rest(by: Int)
    }

    private let pieces: [Piece]

    public init(_ text: String) {
        var pieces: [Piece] = []
        var rest = text[...]
        while let start = rest.range(of: "{n"), let end = rest[start.upperBound...].firstIndex(of: "}") {
            let inside = rest[start.upperBound..<end]
            let modulus = inside.hasPrefix("%") ? Int(inside.dropFirst()) : nil
            // Whatever else begins so is JSON's own.
            guard inside.isEmpty || (modulus ?? 0) > 0 else {
                pieces.append(.literal(Array(rest[..<start.upperBound].utf8)))
                rest = rest[start.upperBound...]
                continue
            }
            pieces.append(.literal(Array(rest[..<start.lowerBound].utf8)))
            pieces.append(modulus.map { .rest(by: $0) } ?? .number)
            rest = rest[rest.index(after: end)...]
        }
        pieces.append(.literal(Array(rest.utf8)))
        self.pieces = pieces
    }

    func append(client number: Int, to writer: inout ByteWriter) {
        for piece in pieces {
            switch piece {
            case .literal(let bytes): writer.append(bytes)
            case .number: writer.append(decimal: Int64(number))
            case .rest(let modulus): writer.append(decimal: Int64(number % modulus))
            }
        }
    }

    public func text(client number: Int) -> String {
        var writer = ByteWriter()
        append(client: number, to: &writer)
        return writer.bytes.text
    }
}

extension Substring {
    /// The first place where another text stands.
    fileprivate func range(of text: String) -> Range<Index>? {
        var start = startIndex
        while start < endIndex {
            if self[start...].hasPrefix(text) { return start..<index(start, offsetBy: text.count) }
            start = index(after: start)
        }
        return nil
    }
}
