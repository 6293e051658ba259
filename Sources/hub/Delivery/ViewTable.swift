import Bytes
import Catalog
import Change
import Net
import Protocol

/// Key of a view: columns of a table and the shape in which rows are shown.
struct ViewKey: Hashable {
    enum Shape: Hashable {
        case rows
        /// Old rows contain only their keys.
        case masked
        /// Old rows are omitted.
        case hidden
        /// Deleted rows contain only their keys.
        case maskedDeletes
        /// Updates are shown as deletes of the old row.
        case departures
        case refused(ChangeRefusal)

        var past: ChangeView.Past {
            switch self {
            case .rows, .departures, .refused: .whole
            case .masked: .keys
            case .hidden: .nothing
            case .maskedDeletes: .keysOfDeleted
            }
        }
    }

    let table: CatalogTable
    let delivered: [Int]
    let shape: Shape

    init(table: CatalogTable, delivered: [Int], shape: Shape) {
        self.table = table
        self.delivered = delivered
        self.shape = shape
    }

    static func == (one: ViewKey, other: ViewKey) -> Bool {
        one.table === other.table && one.delivered == other.delivered && one.shape == other.shape
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(table))
        hasher.combine(delivered)
        hasher.combine(shape)
    }
}

/// View of a table, which some members share. It keeps the body of the current change once that has been written.
struct View {
    let key: ViewKey
    var users: UInt32 = 1
    /// Views for each schema of the rows, by fingerprint.
    private var prepared: [UInt64: ChangeView] = [:]
    /// Number (`ChangeMoment.number`) of the change to which `body` belongs.
    fileprivate(set) var change: UInt64 = 0
    /// Range of the body in the buffer of `FrameWriter`.
    fileprivate(set) var body = 0..<0
    /// Number of the body, unique on the loop, by which envelopes recognize the frame that contains it.
    fileprivate(set) var bodyNumber: UInt64 = 0
    /// Body as the loop shares it between connections; nil if the body is too small for that.
    fileprivate(set) var bodyPiece: Piece?
    /// Index of the view of the same columns without old rows; nil until it is needed. It is released with this view.
    fileprivate var masked: UInt32?
    /// Index of the view of the same columns for departures; nil until it is needed. It is released with this view.
    fileprivate var departed: UInt32?

    init(_ key: ViewKey) { self.key = key }

    /// Returns the view of rows of one stored schema. The first call makes it.
    mutating func prepare(_ fingerprint: UInt64, _ relation: Relation) -> ChangeView {
        if let known = prepared[fingerprint] { return known }
        let made = ChangeView(relation, visible: visible(in: relation), past: key.shape.past)
        // Schemas seldom change; if there are many, most are no longer in use.
        if prepared.count >= 8 { prepared = [:] }
        prepared[fingerprint] = made
        return made
    }

    private func visible(in relation: Relation) -> [VisibleColumn] {
        relation.columns.indices.compactMap { index in
            guard let slot = key.table.slot(named: relation.columns[index].name), key.delivered.contains(slot) else {
                return nil
            }
            let column = key.table.columns[slot]
            return VisibleColumn(index: index, typeName: column.typeName, rendering: column.rendering.value)
        }
    }
}

/// Views in use on one loop.
struct ViewTable {
    /// True if a client that may not see an old row still receives its key, as from the reference server.
    private let tellsFormerKeys: Bool
    private(set) var views = Slots<View>()
    private var byKey: [ViewKey: UInt32] = [:]

    init(tellsFormerKeys: Bool = false) { self.tellsFormerKeys = tellsFormerKeys }

    /// Returns the index of the view with this key, for one more user. The first call makes the view.
    mutating func take(_ key: ViewKey) -> UInt32 {
        if let known = byKey[key] {
            views[known]?.users += 1
            return known
        }
        let index = views.add(View(key))
        byKey[key] = index
        return index
    }

    /// Releases the view for one user. The last user's release removes it.
    mutating func release(_ index: UInt32) {
        guard let view = views[index] else { return }
        assert(view.users > 0, "a view is given back by who took it")
        assert(byKey[view.key] == index, "a view is found by its key")
        if view.users > 1 {
            views[index]?.users -= 1
        } else {
            views.remove(index)
            byKey[view.key] = nil
            if let masked = view.masked { release(masked) }
            if let departed = view.departed { release(departed) }
        }
    }

    /// Returns the view of the same columns for members that may not see the old row.
    mutating func masked(_ index: UInt32) -> UInt32 {
        if let known = views[index]?.masked { return known }
        guard let key = views[index]?.key else { preconditionFailure("a view that is gone") }
        // A client that may not read the row receives no values anyway.
        if case .refused = key.shape { return index }
        let shape: ViewKey.Shape = tellsFormerKeys ? .masked : .hidden
        let made = take(ViewKey(table: key.table, delivered: key.delivered, shape: shape))
        precondition(made != index, "who may not see the old row has another view")
        views[index]?.masked = made
        return made
    }

    /// Returns the view of the same columns that shows an update as a delete, for members whose view a row leaves.
    mutating func departed(_ index: UInt32) -> UInt32 {
        if let known = views[index]?.departed { return known }
        guard let key = views[index]?.key else { preconditionFailure("a view that is gone") }
        let made = take(ViewKey(table: key.table, delivered: key.delivered, shape: .departures))
        assert(made != index, "who hears that a row left has another view")
        views[index]?.departed = made
        return made
    }

    mutating func prepare(_ index: UInt32, _ fingerprint: UInt64, _ relation: Relation) -> ChangeView? {
        views[index]?.prepare(fingerprint, relation)
    }

    mutating func keep(body: Range<Int>, number: UInt64, of index: UInt32, change: UInt64) {
        assert(views.contains(index) && number != 0, "a body is of a view that is there")
        views[index]?.body = body
        views[index]?.bodyNumber = number
        views[index]?.change = change
        views[index]?.bodyPiece = nil
    }

    mutating func keep(_ piece: Piece, of index: UInt32) { views[index]?.bodyPiece = piece }
}
