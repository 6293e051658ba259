/// Use that a policy's text makes of its row, apart from naming columns. The hub must give PostgreSQL a row that
/// contains all that is used.
///
/// The use is determined from the text that PostgreSQL prints. If in doubt, the policy counts as using the whole row.
public struct RowUse: Sendable, Hashable {
    /// True if the text uses the whole row, or something that may be the row, such as `to_jsonb(posts.*)`.
    public var isWhole: Bool
    /// True if the text reads how values are stored on disk, which changes do not contain.
    public var readsStorage: Bool

    public init(isWhole: Bool = false, readsStorage: Bool = false) {
        self.isWhole = isWhole
        self.readsStorage = readsStorage
    }

    public init(of text: String) {
        guard let pieces = PolicyLexer.pieces(text, maximum: .max) else {
            self.init(isWhole: true)
            return
        }
        self.init()
        for (piece, next) in zip(pieces, pieces.dropFirst()) {
            // PostgreSQL writes a reference to the whole row as its name, a dot and an asterisk.
            if piece.token == .mark("."), case .symbol(let symbol) = next.token, symbol.hasPrefix("*") {
                isWhole = true
            }
            if case .word(let name) = piece.token, Self.ofStorage.contains(name) { readsStorage = true }
        }
    }

    private static let ofStorage: Set<String> = [
        "pg_column_size", "pg_column_compression", "pg_column_toast_chunk_id",
    ]
}
