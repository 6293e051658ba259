import Catalog
@_spi(Judging) import History
import Protocol

/// A holder's request to be told of changes of a table.
public struct AskedBinding: Sendable, Hashable {
    public var operations: RowOperations
    /// Filter as clients write it; nil means every row.
    public var filter: String?
    /// Columns that clients ask for; nil means all.
    public var select: [String]?

    public init(operations: RowOperations = .all, filter: String? = nil, select: [String]? = nil) {
        self.operations = operations
        self.filter = filter
        self.select = select
    }
}

extension AskedBinding {
    /// Takes a binding from the ledger with its unmasked filter. Nil if a bundle has marks in place of the filter's
    /// values.
    public init?(_ listed: ListedBinding) {
        if let filter = listed.wholeFilter, filter.contains(MaskMark.sign) { return nil }
        self.init(
            operations: RowOperations(event: listed.event), filter: listed.wholeFilter,
            select: listed.select.isEmpty ? nil : listed.select)
    }
}

/// Proposed subscriptions in place of the present ones. The answer then covers only their tables, and depends both on
/// what holders ask for and on what they may see.
public struct ProposedBindings: Sendable {
    /// Bindings that every holder would ask for, by table.
    public var then: [TableName: [AskedBinding]]
    /// Bindings that each holder asks for now, by table, in the order of the holders.
    public var now: [[TableName: [AskedBinding]]]

    public init(then: [TableName: [AskedBinding]], now: [[TableName: [AskedBinding]]]) {
        self.then = then
        self.now = now
    }
}

/// The subscriptions of one side, with the meaning that PostgreSQL gives them on that side.
struct BoundBindings {
    enum Side { case now, then }

    private let proposed: ProposedBindings
    private let side: Side
    private let view: CatalogView
    private let proposal: Proposal
    private var known: [BindingRequest: [TableBinding]] = [:]

    init(_ proposed: ProposedBindings, _ side: Side, _ view: CatalogView, _ proposal: Proposal) {
        self.proposed = proposed
        self.side = side
        self.view = view
        self.proposal = proposal
    }

    func concerns(_ table: CatalogTable) -> Bool { proposed.then[Self.name(table)] != nil }

    /// Returns the bindings that a holder asks for on one of these tables. A present binding that is refused today
    /// counts as not asked for. A proposed binding that is refused is an error.
    mutating func bindings(of holder: Int, _ role: String, _ table: CatalogTable) throws -> [TableBinding] {
        let name = Self.name(table)
        let asked = side == .then ? proposed.then[name] : proposed.now[holder][name]
        var bindings: [TableBinding] = []
        for binding in asked ?? [] {
            let request = BindingRequest(
                role: role, schema: name.schema, table: name.name, filter: binding.filter, select: binding.select,
                operations: binding.operations)
            if let found = known[request] {
                bindings += found
                continue
            }
            let found = try bound(request)
            known[request] = found
            bindings += found
        }
        return bindings
    }

    private func bound(_ request: BindingRequest) throws -> [TableBinding] {
        switch try proposal.outcome(of: request, in: view) {
        case .tables(let tables): return tables
        case .failed(let reason) where side == .then:
            throw WhatIf.Failure.badBinding(table: "\(request.schema).\(request.table)", reason: reason.text)
        default: return []
        }
    }

    private static func name(_ table: CatalogTable) -> TableName { TableName(schema: table.schema, name: table.name) }
}
