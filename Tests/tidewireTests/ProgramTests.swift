import TestSupport
import Testing

@testable import Console
@testable import tidewire

@Suite(.within(minutes: 10)) struct HelpTests {
    @Test(arguments: [[], ["help"], ["--help"], ["-h"]])
    func `lists the commands`(words: [String]) async {
        let result = await run(words)
        #expect(result.exitCode == .ok)
        #expect(
            result.output.contains("\n  config   Print the effective configuration, or a sample file to start from.\n"))
        #expect(result.errors.isEmpty)
    }

    @Test func `shows the same manual however it is asked for`() async {
        let manual = await run("help", "config").output
        #expect(manual.hasPrefix("NAME\n    tidewire config - Print"))
        for heading in ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "CONFIGURATION OPTIONS", "EXAMPLES", "EXIT STATUS"] {
            #expect(manual.contains("\n\n\(heading)\n"), "\(heading)")
        }
        #expect(await run("config", "--help").output == manual)
        #expect(await run("config", "-h").output == manual)
        #expect(await run("config", "--nonsense", "--help").output == manual)
    }

    @Test func `shows manuals of nested commands`() async {
        let manual = await run("help", "log", "verify").output
        #expect(manual.contains("tidewire log verify [OPTION...] TABLE [KEY]"))
        #expect(manual.contains("    --mask COLUMN ...  What to hide."))
        #expect(manual.contains("    5  the event log is damaged"))
        #expect(!manual.contains("--jwt-secret"))
        #expect(await run("log").output.contains("COMMANDS\n    verify  Read every checksum."))
        #expect(await run("log", "--help").output == run("log").output)
    }

    @Test func `keeps manuals within eighty columns`() async {
        for line in await run("help", "config").output.split(separator: "\n") {
            #expect(line.count <= 80, "\(line)")
        }
    }
}

@Suite(.within(minutes: 10)) struct UsageTests {
    @Test func `suggests the nearest command`() async {
        let result = await run("confg")
        #expect(result.exitCode == .usage)
        #expect(result.errors == "tidewire: there is no command \"confg\"; did you mean `tidewire config`?\n")
        #expect(result.output.isEmpty)
    }

    @Test func `lists the commands when none is near`() async {
        #expect(
            await run("help", "frobnicate").errors
                == "tidewire: there is no command \"frobnicate\"; there are config, version, log\n")
    }

    @Test func `suggests the nearest subcommand`() async {
        let result = await run("log", "verfy")
        #expect(result.exitCode == .usage)
        #expect(result.errors == "tidewire: there is no command \"verfy\"; did you mean `tidewire log verify`?\n")
    }

    @Test(arguments: [
        (["t", "--limt", "3"], "there is no option --limt; did you mean --limit?"),
        (["t", "--zzzzzz"], "there is no option --zzzzzz"), (["t", "-x"], "there is no option -x"),
        (["t", "--limit"], "--limit needs a value: N"), (["t", "--limit", "--follow"], "--limit needs a value: N"),
        (["t", "--follow=maybe"], "--follow takes no value"), ([], "TABLE is missing"),
        (["t", "k", "x"], "\"x\" is one argument too many"),
    ])
    func `says what is wrong with the command line`(words: [String], message: String) async {
        let result = await run(["log", "verify"] + words)
        #expect(result.exitCode == .usage)
        #expect(
            result.errors == "tidewire log verify: \(message)\n`tidewire log verify --help` shows how it is used.\n")
    }

    @Test func `does not repeat the value of an unknown option`() async {
        let result = await run("config", "--jwt-secrt=hunter2")
        #expect(result.errors.contains("did you mean --jwt-secret?"))
        #expect(!result.errors.contains("hunter2"))
        #expect(await !run("--jwt-secret=hunter2").errors.contains("hunter2"))
    }

    @Test func `reads the values of options as those of settings`() async {
        let result = await run("log", "picky", "--limit", "11")
        #expect(result.exitCode == .usage)
        #expect(result.errors.hasPrefix("tidewire log picky: --limit: expected a whole number from 1 to 10\n"))
    }
}

@Suite(.within(minutes: 10)) struct ArgumentTests {
    @Test func `takes options in every form and place`() async {
        let result = await run(
            "log", "verify", "-fa", "--limit=3", "public.notes", "--mask", "a", "-n5", "--mask=b", "--data-dir", "/x",
            "-7")
        #expect(
            result.output == """
                operands ["public.notes", "-7"]
                limit 5 mask ["a", "b"]
                follow true all true
                data_dir /x

                """)
    }

    @Test func `takes everything after two dashes as it is`() async {
        #expect(await run("log", "verify", "--", "--follow", "-x").output.hasPrefix(#"operands ["--follow", "-x"]"#))
    }

    @Test func `takes values that begin with a dash`() async {
        #expect(await run("log", "verify", "t", "--limit", "-15m").output.contains("limit -15m"))
    }

    @Test func `takes no for an answer`() async {
        #expect(await run("log", "verify", "t", "--follow", "--follow=false").output.contains("follow false"))
    }
}

@Suite(.within(minutes: 10)) struct EndingTests {
    @Test func `explains a failure after what was printed`() async {
        let result = await run("log", "picky")
        #expect(result.exitCode == .damaged)
        #expect(result.output == "so far\n")
        #expect(result.errors == "tidewire: segment 3 is damaged\ntry `tidewire log verify --repair`\n")
    }

    @Test func `ends quietly when the reader has gone`() async {
        let result = await run("config", outputFailure: .readerGone)
        #expect(result.exitCode == .ok)
        #expect(result.errors.isEmpty)
    }

    @Test func `complains when the output cannot be written`() async {
        let result = await run("config", outputFailure: .failed(errno: 28))
        #expect(result.exitCode == .notFound)
        #expect(result.errors == "tidewire: cannot write the output: No space left on device\n")
    }

    @Test func `has the promised exit codes`() {
        #expect(ExitCode.allCases.map(\.rawValue) == [0, 1, 2, 3, 4, 5])
    }
}

@Suite(.within(minutes: 10)) struct CommandTests {
    @Test func `prints the version`() async {
        #expect(await run("version").output.hasPrefix("tidewire 1.0.0\nSwift "))
        #expect(await run("--version").output.hasPrefix("tidewire 1.0.0\n"))
        #expect(await run("version", "--json").output.hasPrefix(#"{"version":"1.0.0","swift":""#))
    }

    @Test func `prints settings with their sources, secrets hidden`() async {
        let result = await run(
            "config", "jwt_secret", "slot", "database_url", "--slot", "mine",
            environment: ["API_JWT_SECRET": "hunter2"],
            files: ["./tidewire.conf": "database_url = 'postgres://u:hunter2@h/d'"])
        #expect(
            result.output == """
                   NAME          VALUE                      SOURCE
                *  database_url  postgres://u:********@h/d  ./tidewire.conf:1
                *  slot          mine                       --slot
                *  jwt_secret    ********                   environment API_JWT_SECRET

                """)
    }

    @Test func `prints settings as JSON`() async {
        let lines = await run("config", "--json", "--slot=mine").output.split(separator: "\n")
        #expect(
            lines.contains(
                #"{"name":"slot","value":"mine","source":"--slot","default":false,"group":"Database","#
                    + #""summary":"The replication slot, in which PostgreSQL records how far the hub has read."}"#))
        #expect(lines.first?.hasPrefix(#"{"name":"database_url","value":null,"#) == true)
    }

    @Test func `prints the defaults whatever is set`() async {
        let result = await run("config", "slot", "--defaults", environment: ["TIDEWIRE_SLOT": "mine"])
        #expect(result.output.contains("   slot  tidewire  default\n"))
    }

    @Test func `prints a sample`() async {
        #expect(await run("config", "--example").output.contains("\n#data_dir = '/var/lib/tidewire'\n"))
    }

    @Test func `ends with the usage code when the configuration is wrong`() async {
        let result = await run("config", environment: ["TIDEWIRE_LSTEN": "x"])
        #expect(result.exitCode == .usage)
        #expect(
            result.errors
                == "tidewire: environment TIDEWIRE_LSTEN: there is no such setting; did you mean TIDEWIRE_LISTEN?\n")
        #expect(await run("config", "slto").errors.contains("there is no setting slto; did you mean slot?"))
    }
}
