import Auth

/// Setting together with the type of its value in the program.
public struct TypedSetting<Value: Sendable>: Sendable {
    let setting: Setting
    /// Converts the setting's parsed value, which may be nil, to the program's type. Returns nil if the value is of
    /// another type than the setting.
    let value: @Sendable (SettingValue?) -> Value?

    private init(_ setting: Setting, _ value: @escaping @Sendable (SettingValue?) -> Value?) {
        self.setting = setting
        self.value = value
    }

    /// Creates a setting that always has a value. `defaultText` is nil if the default depends on the user that runs the
    /// hub.
    init(
        _ name: String, _ group: Setting.Group, _ kind: SettingKind<Value>, default defaultText: String?,
        aliases: [String] = [], _ summary: String
    ) {
        let setting = Setting(
            name: name, group: group, type: kind.type, defaultText: defaultText, summary: summary, aliases: aliases)
        self.init(setting) { $0.flatMap(kind.value) }
    }

    /// Creates a setting that may have no value.
    init<Given>(
        _ name: String, _ group: Setting.Group, _ kind: SettingKind<Given>, aliases: [String] = [], _ summary: String
    ) where Value == Given? {
        let setting = Setting(
            name: name, group: group, type: kind.type, defaultText: nil, summary: summary, aliases: aliases)
        self.init(setting) { given in
            guard let given else { return .some(nil) }
            return kind.value(given).map { .some($0) }
        }
    }
}

extension TypedSetting where Value: AdditiveArithmetic {
    /// Setting like this one, but with an optional value: zero means no limit (nil).
    var unlessZero: TypedSetting<Value?> {
        TypedSetting<Value?>(setting) { [value] given in value(given).map { $0 == .zero ? nil : $0 } }
    }
}

/// Property of `AllSettings`, by which code reads the value of a setting.
public typealias SettingKey<Value: Sendable> = KeyPath<AllSettings, TypedSetting<Value>>

/// Typed setting of any value type, for lists of all settings.
protocol SettingDeclaration {
    var setting: Setting { get }
}

extension TypedSetting: SettingDeclaration {}

/// Type of a setting's text, with the conversion to the program's value.
struct SettingKind<Value: Sendable>: Sendable {
    let type: SettingType
    /// Converts a setting's parsed value to the program's type; nil for a value of another type.
    let value: @Sendable (SettingValue) -> Value?

    init(_ type: SettingType, _ value: @escaping @Sendable (SettingValue) -> Value?) {
        self.type = type
        self.value = value
    }

    /// Returns a kind whose allowed texts are the given words, each of which stands for a value.
    static func choice(_ words: [(String, Value)], synonyms: [String: String] = [:]) -> Self {
        Self(.choice(words.map(\.0), synonyms: synonyms)) { given in words.first { $0.0 == given.text }?.1 }
    }
}

extension SettingKind<String> {
    static var text: Self { Self(.text, \.text) }
    static var path: Self { Self(.path, \.text) }
    static var file: Self { Self(.file, \.text) }
    static var slotName: Self { Self(.slotName, \.text) }
    static var identifier: Self { Self(.identifier, \.text) }
    static var nodeName: Self { Self(.nodeName, \.text) }
}

extension SettingKind<Bool> {
    static var boolean: Self { Self(.boolean) { if case .boolean(let flag) = $0 { flag } else { nil } } }
}

extension SettingKind<Int> {
    static func integer(_ range: ClosedRange<Int64>) -> Self {
        Self(.integer(range)) { if case .integer(let number) = $0 { Int(number) } else { nil } }
    }

    static func size(_ range: ClosedRange<Int64>) -> Self {
        Self(.size(range)) { if case .size(let bytes) = $0 { Int(bytes) } else { nil } }
    }
}

extension SettingKind<Duration> {
    static func duration(_ range: ClosedRange<Duration>) -> Self {
        Self(.duration(range)) { if case .duration(let duration) = $0 { duration } else { nil } }
    }
}

extension SettingKind<Secret> {
    static var secret: Self { Self(.secret) { if case .secret(let secret) = $0 { secret } else { nil } } }
}

extension SettingKind<ListenAddress> {
    static var address: Self { Self(.address) { if case .address(let address) = $0 { address } else { nil } } }
}

extension SettingKind<ConnectionString> {
    static var connection: Self { Self(.connection) { if case .connection(let text) = $0 { text } else { nil } } }
}

extension SettingKind<InlineOrFile> {
    static func inlineOrFile(_ what: String, begins beginning: String) -> Self {
        Self(.inlineOrFile(what, begins: beginning)) { if case .source(let source) = $0 { source } else { nil } }
    }
}

extension SettingKind<ClaimExpectations> {
    static var claimValues: Self { Self(.claimValues) { $0.text.flatMap(ClaimText.read) } }
}

extension SettingKind<ClusterAddresses> {
    static var natsServers: Self {
        Self(.natsServers) { if case .servers(let addresses) = $0 { addresses } else { nil } }
    }
}

extension SettingKind<MonitorAddresses> {
    static var monitors: Self { Self(.monitors) { if case .monitors(let addresses) = $0 { addresses } else { nil } } }
}

extension SettingValue {
    fileprivate var text: String? { if case .text(let text) = self { text } else { nil } }
}
