"""What coding agents send, as recorded from them: fields and schemas as they are, prose in a few words of ours."""

from __future__ import annotations

from typing import Any

LARGEST = 2**53 - 1  # what JavaScript's schemas say of whole numbers
DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
NUMBER = {"type": "number"}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """A schema of an object that has nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def codex_function(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A function as Codex offers it."""
    head = {"type": "function", "name": name, "description": f"Does {name}."}
    return head | {"strict": False, "parameters": parameters}


def codex_message(role: str, *texts: str) -> dict[str, Any]:
    """A message as Codex keeps it."""
    parts = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "id": f"msg_{role}", "role": role, "content": parts}


EXEC_COMMAND = codex_function(
    "exec_command",
    closed(
        {
            "cmd": STRING,
            "justification": STRING,
            "login": BOOLEAN,
            "max_output_tokens": NUMBER,
            "prefix_rule": {"type": "array", "items": STRING},
            "sandbox_permissions": {"type": "string", "enum": ["use_default", "require_escalated"]},
            "workdir": STRING,
        },
        "cmd",
    ),
)
CODEX_TOOLS = [
    EXEC_COMMAND,
    codex_function("write_stdin", closed({"chars": STRING, "session_id": NUMBER}, "session_id")),
    codex_function("get_goal", closed({})),
    {
        "type": "namespace",
        "name": "multi_agent_v1",
        "description": "Other agents.",
        "tools": [codex_function("close_agent", closed({"target": STRING}, "target"))],
    },
    {"type": "web_search", "external_web_access": True},
]
CODEX_HEADERS = {
    "accept": "text/event-stream",
    "originator": "codex_exec",
    "user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64) xterm (codex_exec; 0.169.0)",
    "session-id": "01a2064f",
    "thread-id": "01a2064f",
    "x-client-request-id": "01a2064f",
    "x-codex-beta-features": "remote_compaction_v2",
    "x-codex-turn-metadata": '{"installation_id":"c7471971"}',
    "x-codex-window-id": "01a2064f:0",
}
CODEX: dict[str, Any] = {
    "model": "gpt-5-codex",
    "stream": True,
    "input": [
        codex_message("developer", "You are a coding agent."),
        codex_message("developer", "<skills_instructions>None.</skills_instructions>", "Be brief."),
        codex_message("user", "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"),
        codex_message("user", "What is in a.txt?"),
    ],
    "tools": CODEX_TOOLS,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a2064f",
    "client_metadata": {"session_id": "01a2064f", "x-codex-window-id": "01a2064f:0"},
}

# What is different where the name is one of OpenAI's models
CODEX_FOR_A_KNOWN_MODEL: dict[str, Any] = {
    "model": "gpt-5.5",
    "tools": [
        EXEC_COMMAND,
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
        },
        {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": closed({})},
        {"type": "web_search", "external_web_access": True, "search_content_types": ["text", "image"]},
    ],
    "reasoning": {"effort": "medium"},
    "text": {"verbosity": "low"},
}


def claude_tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A tool as Claude Code offers it."""
    return {"name": name, "description": f"Does {name}.", "input_schema": DRAFT | schema}


BASH = claude_tool("Bash", closed({"command": STRING, "timeout": NUMBER, "run_in_background": BOOLEAN}, "command"))
READ = claude_tool(
    "Read",
    closed(
        {
            "file_path": STRING,
            "offset": {"type": "integer", "minimum": 0, "maximum": LARGEST},
            "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": LARGEST},
        },
        "file_path",
    ),
)
STATUSES = [{"type": "string", "enum": ["pending", "completed"]}, {"type": "string", "const": "deleted"}]
ANYTHING = {"type": "object", "propertyNames": STRING, "additionalProperties": {}}
CLAUDE_TOOLS = [
    BASH,
    READ,
    claude_tool("Edit", closed({"replace_all": {"default": False, "type": "boolean"}})),
    claude_tool(
        "TaskUpdate", closed({"taskId": STRING, "status": {"anyOf": STATUSES}, "metadata": ANYTHING}, "taskId")
    ),
    claude_tool("WebFetch", closed({"url": {"type": "string", "format": "uri"}, "prompt": STRING}, "url", "prompt")),
]
CLAUDE_HEADERS = {
    "authorization": "Bearer none",
    "user-agent": "claude-cli/2.1.197 (external, sdk-cli)",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "anthropic-version": "2023-06-01",
    "x-app": "cli",
    "x-claude-code-session-id": "9cb3c655",
    "x-stainless-retry-count": "0",
    "x-stainless-timeout": "600",
}
CLAUDE: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>The date is unknown.</system-reminder>"},
                {"type": "text", "text": "What is in a.txt?", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "system", "content": "There are no other agents."},
    ],
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.84c; cc_entrypoint=sdk-cli;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
    ],
    "tools": CLAUDE_TOOLS,
    "metadata": {"user_id": '{"device_id":"cd7c","account_uuid":"","session_id":"9cb3c655"}'},
    "max_tokens": 32_000,
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "stream": True,
}


def opencode_tool(name: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """A tool as opencode offers it; its schemas are not closed."""
    schema = DRAFT | {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}


POSITIVE = {"type": "integer", "minimum": -LARGEST, "exclusiveMinimum": 0, "maximum": LARGEST}
OPENCODE_HEADERS = {
    "authorization": "Bearer none",
    "user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14",
    "x-session-affinity": "ses_df9a",
    "x-session-id": "ses_df9a",
}
OPENCODE: dict[str, Any] = {
    "model": "local",
    "max_tokens": 2048,
    "messages": [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": "What is in a.txt?"},
    ],
    "tools": [
        opencode_tool("bash", {"command": STRING, "timeout": POSITIVE, "workdir": STRING}, "command"),
        opencode_tool("read", {"filePath": STRING, "offset": POSITIVE}, "filePath"),
    ],
    "tool_choice": "auto",
    "stream": True,
    "stream_options": {"include_usage": True},
}
