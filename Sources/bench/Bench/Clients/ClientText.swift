import Bytes
import Crypto

/// Template of a text that differs for each client. `{n}` is the client's number, `{n:12}` the number in twelve digits,
/// `{n%10}` the number modulo 10, `{n/6}` the number divided by 6 (rounded down). `{token}` is the client's own token,
/// if there is one.
public struct ClientText: Sendable {
    private enum Piece: Sendable {
        case literal([UInt8])
        case number(digits: Int)
        case token
        case rest(by: Int)
        case quotient(by: Int)
    }

    private let pieces: [Piece]

    public init(_ text: String) {
        var pieces: [Piece] = []
        var rest = text[...]
        while let start = rest.firstIndex(of: "{") {
            let behind = rest.index(after: start)
            // Other braces are part of the JSON.
            guard let end = rest[behind...].firstIndex(of: "}"), let piece = Self.piece(rest[behind..<end]) else {
                pieces.append(.literal(Array(rest[..<behind].utf8)))
                rest = rest[behind...]
                continue
            }
            pieces.append(.literal(Array(rest[..<start].utf8)))
            pieces.append(piece)
            rest = rest[rest.index(after: end)...]
        }
        pieces.append(.literal(Array(rest.utf8)))
        self.pieces = pieces
    }

    /// Returns the part of the template that the text between two braces stands for; nil if it is not a placeholder.
    private static func piece(_ inside: Substring) -> Piece? {
        if inside == "token" { return .token }
        guard inside.hasPrefix("n") else { return nil }
        let rest = inside.dropFirst()
        if rest.isEmpty { return .number(digits: 1) }
        guard let number = Int(rest.dropFirst()), (1...1_000_000).contains(number) else { return nil }
        switch rest.first {
        case "%": return .rest(by: number)
        case "/": return .quotient(by: number)
        case ":" where number < 20: return .number(digits: number)
        default: return nil
        }
    }

    func append(client number: Int, to writer: inout ByteWriter, signature: ClientSignature? = nil) {
        for piece in pieces {
            switch piece {
            case .literal(let bytes): writer.append(bytes)
            case .number(let digits):
                let text = String(number)
                writer.append(String(repeating: "0", count: max(0, digits - text.utf8.count)) + text)
            case .token: if let signature { writer.append(signature.token(client: number)) }
            case .rest(let modulus): writer.append(decimal: Int64(number % modulus))
            case .quotient(let divisor): writer.append(decimal: Int64(number / divisor))
            }
        }
    }

    public func text(client number: Int) -> String {
        var writer = ByteWriter()
        append(client: number, to: &writer)
        return writer.bytes.text
    }
}

/// Claims and a secret from which the load generator makes the token of each client. The claims differ for each client.
public struct ClientSignature: Sendable {
    let secret: [UInt8]
    let claims: ClientText

    func token(client number: Int) -> String {
        let claims = Array(claims.text(client: number).utf8)
        return JWT.sign(claims: claims.span, secret: secret.span)
    }
}
