/// Ways in which a policy's text uses its row, other than by columns' names. The hub must give PostgreSQL a row that
/// has what the text uses.
///
/// The uses are found in the text as PostgreSQL writes it. In doubt, the text uses the whole row.
public struct RowUse: Sendable, Hashable {
    /// True if the text uses the row as a whole, or something that may be the row: `to_jsonb(posts.*)`.
    public var isWhole: Bool
    /// True if the text looks at how values lie on disk, which a change does not tell.
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
            // PostgreSQL writes a whole row as its name, a dot and an asterisk, in every place.
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
