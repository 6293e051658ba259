import Bytes

/// Options that go beyond the reference and that a client must ask for.
///
/// Existing clients drop unknown members of a join, each client in another place. Therefore options have several
/// places: parameters of the socket's address (`tidewire.moves=true`), `config.broadcast.tidewire`, a binding's own
/// `tidewire`, and `config.tidewire`. If several places set an option, the place nearest to the channel counts.
public struct ExtensionOptions: Sendable, Hashable {
    public enum Name: UInt8, Sendable, CaseIterable {
        /// Sends a delete for an update that takes a row out of a binding's view.
        case moves
        /// Tells the channel about data that limits or rights withhold from it.
        case limits
        /// Sends log positions, from which the client can resume.
        case position
        /// Sends the existing rows first.
        case snapshot

        var text: StaticString {
            switch self {
            case .moves: "moves"
            case .limits: "limits"
            case .position: "position"
            case .snapshot: "snapshot"
            }
        }

        fileprivate var bit: UInt8 { 1 << rawValue }
    }

    private var given: UInt8 = 0
    private var values: UInt8 = 0
    /// Unknown options, and options with an invalid value; the first `maximumUnknown` of them.
    public private(set) var unknown: [String] = []

    public static let maximumUnknown = 8
    private static let maximumShownCharacters = 64

    public init() {}

    /// Reads the options from the parameters of a socket's address: all that begin with `tidewire.`.
    public init(parameters: some Sequence<(name: String, value: String)>) {
        for (name, value) in parameters where name.hasPrefix("tidewire.") {
            let option = Name.allCases.first { "tidewire.\($0.text)" == name }
            switch (option, value.lowercased()) {
            case (let option?, "true"), (let option?, "1"): self[option] = true
            case (let option?, "false"), (let option?, "0"): self[option] = false
            default: note("\(name)=\(value)")
            }
        }
    }

    public subscript(name: Name) -> Bool? {
        get { given & name.bit == 0 ? nil : values & name.bit != 0 }
        set {
            given = newValue == nil ? given & ~name.bit : given | name.bit
            values = newValue == true ? values | name.bit : values & ~name.bit
        }
    }

    /// Returns these options, with values from `wider` for options that are not set here.
    public func over(_ wider: ExtensionOptions) -> ExtensionOptions {
        var both = self
        both.given |= wider.given
        both.values |= wider.values & ~given
        for name in wider.unknown { both.note(name) }
        assert(both.values & ~both.given == 0, "only options that are given have a value")
        return both
    }

    mutating func note(_ name: String) {
        guard unknown.count < Self.maximumUnknown, !unknown.contains(name) else { return }
        let shown = name.prefix(Self.maximumShownCharacters)
        unknown.append(shown.count < name.count ? shown + "…" : name)
        assert(unknown.count <= Self.maximumUnknown, "no more unknown options are kept than allowed")
    }

    /// Returns the message for a client that asked for an unknown option.
    public func complaint(_ name: String) -> ClientText {
        let names = Name.allCases.map { "\($0.text)" }.joined(separator: ", ")
        return ClientText(
            .unknownOption, "Unknown option \(name): there are \(names) (true or false) and, in a join, resume")
    }
}

extension ExtensionOptions {
    /// Reads the object that begins with the next token; if another value begins there, skips it.
    init(_ scanner: inout JSONScanner) throws(ByteError) {
        let token = try scanner.next()
        guard token == .beginObject else {
            try scanner.skip(token)
            return
        }
        while try scanner.next() == .name { try readMember(&scanner) }
    }

    /// Reads the value of a member whose name is the last token.
    mutating func readMember(_ scanner: inout JSONScanner) throws(ByteError) {
        let option = Name.allCases.first { scanner.equals($0.text) }
        let name = option == nil ? scanner.text : ""
        let token = try scanner.next()
        // All booleans of a join may also be strings, in any case.
        let text = token == .string && scanner.tokenBytes.byteCount <= 5 ? scanner.text.lowercased() : ""
        switch (option, token) {
        case (let option?, .bool(let value)): self[option] = value
        case (let option?, .string) where text == "true" || text == "false": self[option] = text == "true"
        case (.some, .null): break
        case (let option, _):
            note("tidewire.\(option.map { "\($0.text)" } ?? name)")
            try scanner.skip(token)
        }
    }
}
